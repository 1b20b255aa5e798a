#include "text/reply/reply_format.h"

namespace moeflux {

std::string_view name_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::none: return "none";
    case ToolFormat::qwen_xml: return "qwen_xml";
    case ToolFormat::hermes_json: return "hermes_json";
    case ToolFormat::deepseek_v3: return "deepseek_v3";
  }
  return "none";
}

ToolFormat detect_tool_format(std::string_view chat_template_source) {
  const auto has = [&](std::string_view part) {
    return chat_template_source.find(part) != std::string_view::npos;
  };
  if (has("<｜tool▁calls▁begin｜>")) return ToolFormat::deepseek_v3;
  if (!has("<tool_call>")) return ToolFormat::none;
  if (has("<function=")) return ToolFormat::qwen_xml;
  // Quotes inside a string of the template may be escaped: {\"name\": ...}.
  if (has("\"name\"") || has("\\\"name\\\"")) return ToolFormat::hermes_json;
  return ToolFormat::none;
}

bool detect_reasoning(std::string_view chat_template_source) {
  return chat_template_source.find("</think>") != std::string_view::npos;
}

bool prompt_opens_reasoning(std::string_view rendered_prompt) {
  while (rendered_prompt.ends_with('\n')) rendered_prompt.remove_suffix(1);
  return rendered_prompt.ends_with("<think>");
}

}  // namespace moeflux
