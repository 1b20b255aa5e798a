#pragma once
// Collects a reply: text, reasoning and tool calls, as a message of the assistant. One thread at a time.

#include <string>

#include "base/json/json.h"
#include "generation/generation.h"

namespace moeflux::cli {

class AnswerCollector : public GenerationListener {
 public:
  void said(const ReplyEvent& event) override;

  const std::string& text() const { return text_; }
  const std::string& reasoning() const { return reasoning_; }
  // [{"id", "type": "function", "function": {"name", "arguments": {...}}}]
  const Json& tool_calls() const { return tool_calls_; }

  // {"role": "assistant", "content", "reasoning_content"?, "tool_calls"?}
  Json message() const;

 private:
  std::string text_, reasoning_;
  Json tool_calls_ = Json::array();
};

}  // namespace moeflux::cli
