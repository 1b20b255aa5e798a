#pragma once
// The formats in which models write reasoning and tool calls, and their detection from the chat template.
//
// docs/replies.md describes the formats. Plain values and pure functions, thread-safe.

#include <cstdint>
#include <string_view>

namespace moeflux {

enum class ToolFormat : std::uint8_t {
  none,         // tool calls are not parsed
  qwen_xml,     // <tool_call><function=NAME><parameter=KEY>...: Qwen3-Coder, Qwen3.5
  hermes_json,  // <tool_call>{"name": ..., "arguments": ...}: Hermes, Qwen2.5, Qwen3
  deepseek_v3,  // <｜tool▁calls▁begin｜>...: DeepSeek V3, R1, V3.1
};

// The name in messages and options, for example "qwen_xml".
std::string_view name_of(ToolFormat format);

struct ReplyFormat {
  ToolFormat tools = ToolFormat::none;
  bool reasoning = false;                // a reply may begin with <think>...</think>
  bool starts_inside_reasoning = false;  // the prompt ended with <think>; requires `reasoning`
};

// The format that a chat template instructs the model to write. Checked in this order: the tags of DeepSeek,
// "<tool_call>" with "<function=", "<tool_call>" with "name" in quotes.
ToolFormat detect_tool_format(std::string_view chat_template_source);

// Whether the template handles reasoning, that is, contains "</think>".
bool detect_reasoning(std::string_view chat_template_source);

// Whether the reply to this prompt starts inside reasoning: the prompt ends with "<think>" and any newlines.
bool prompt_opens_reasoning(std::string_view rendered_prompt);

}  // namespace moeflux
