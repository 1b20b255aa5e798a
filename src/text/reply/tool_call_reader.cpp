#include "text/reply/tool_call_reader.h"

#include "text/json/json_automaton.h"

namespace moeflux {

std::unique_ptr<ToolCallReader> make_tool_call_reader(ToolFormat format, const ToolSchemas& schemas) {
  switch (format) {
    case ToolFormat::none: return nullptr;
    case ToolFormat::qwen_xml: return make_qwen_xml_reader(schemas);
    case ToolFormat::hermes_json: return make_hermes_json_reader();
    case ToolFormat::deepseek_v3: return make_deepseek_v3_reader();
  }
  return nullptr;
}

Match begins_with(std::string_view text, std::string_view word, bool ended) {
  if (text.starts_with(word)) return Match::yes;
  return !ended && word.starts_with(text) ? Match::unclear : Match::no;
}

TagSearch find_tag(std::string_view text, std::string_view tag, bool ended) {
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const Match match = begins_with(text.substr(at), tag, ended);
    if (match != Match::no) return {at, match == Match::yes};
  }
  return {text.size(), false};
}

void skip_json_whitespace(std::string_view& text) {
  while (!text.empty() && is_json_whitespace(text.front())) text.remove_prefix(1);
}

Match take_name(std::string_view& text, std::string_view end, bool ended, std::string_view& name) {
  const std::size_t size = text.substr(0, kMaxToolNameBytes + 1).find_first_of("<>\n");
  if (size == std::string_view::npos)
    return text.size() > kMaxToolNameBytes || ended ? Match::no : Match::unclear;
  if (size == 0) return Match::no;
  const Match match = begins_with(text.substr(size), end, ended);
  if (match != Match::yes) return match;
  name = text.substr(0, size);
  text.remove_prefix(size + end.size());
  return Match::yes;
}

}  // namespace moeflux
