#pragma once
// How a model writes its reasoning and its tool calls, and how to tell from its chat template.
//
// docs/replies.md describes the formats. Plain values and pure functions: any thread.

#include <cstdint>
#include <string_view>

namespace moeflux {

enum class ToolFormat : std::uint8_t {
  none,         // tool calls are not looked for
  qwen_xml,     // <tool_call><function=NAME><parameter=KEY>...: Qwen3-Coder, Qwen3.5
  hermes_json,  // <tool_call>{"name": ..., "arguments": ...}: Hermes, Qwen2.5, Qwen3
  deepseek_v3,  // <｜tool▁calls▁begin｜>...: DeepSeek V3, R1, V3.1
};

// As it appears in messages and options: "qwen_xml".
std::string_view name_of(ToolFormat format);

struct ReplyFormat {
  ToolFormat tools = ToolFormat::none;
  bool reasoning = false;                // a reply may begin with <think>...</think>
  bool starts_inside_reasoning = false;  // the prompt ended with <think>; only with reasoning
};

// By what the source of a chat template tells the model to write; the tags of DeepSeek, then "<function="
// beside "<tool_call>", then "<tool_call>" beside "name" in quotes.
ToolFormat detect_tool_format(std::string_view chat_template_source);

// Whether the template knows of reasoning: it mentions "</think>".
bool detect_reasoning(std::string_view chat_template_source);

// Whether the reply to this prompt starts inside reasoning: the prompt ends with "<think>" and perhaps
// newlines.
bool prompt_opens_reasoning(std::string_view rendered_prompt);

}  // namespace moeflux
