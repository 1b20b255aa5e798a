#include "cli/answer.h"

#include <fmt/format.h>

#include "base/overloaded.h"

namespace moeflux::cli {
namespace {

// Arguments as an object, as templates expect them; as text if they are not valid JSON.
Json arguments_of(std::string_view json) {
  Result<Json> parsed = parse_json(json, "arguments");
  return parsed ? *std::move(parsed) : Json(json);
}

}  // namespace

void AnswerCollector::said(const ReplyEvent& event) {
  std::visit(
      overloaded{
          [&](const ReplyText& text) { text_ += text.text; },
          [&](const ReplyReasoning& reasoning) { reasoning_ += reasoning.text; },
          [&](const ToolCallFinished& call) {
            tool_calls_.push_back(
                {{"id", fmt::format("call_{}", call.index)},
                 {"type", "function"},
                 {"function", {{"name", call.name}, {"arguments", arguments_of(call.arguments_json)}}}});
          },
          [](const ToolCallStarted&) {},
          [](const ToolCallArguments&) {},
          [](const ToolCallAbandoned&) {},
      },
      event);
}

Json AnswerCollector::message() const {
  Json message{{"role", "assistant"}, {"content", text_}};
  if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
  if (!tool_calls_.empty()) message["tool_calls"] = tool_calls_;
  return message;
}

}  // namespace moeflux::cli
