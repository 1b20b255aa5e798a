// Qwen: <tool_call> <function=NAME> (<parameter=KEY> VALUE </parameter>)* </function> </tool_call>, with
// whitespace between.

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "text/reply/tool_call_reader.h"

namespace moeflux {
namespace {

constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr std::string_view kCallEnd = "</tool_call>";

class QwenXmlReader final : public ToolCallReader {
 public:
  explicit QwenXmlReader(const ToolSchemas& schemas) : schemas_(schemas) {}

  std::string_view opening_tag() const override { return "<tool_call>"; }

  void begin() override {
    state_ = State::function;
    keys_.clear();
  }

  Progress read(std::string_view& unread, bool ended, ToolCall& call) override {
    for (;;) {
      Match moved = Match::no;
      switch (state_) {
        case State::function: moved = read_function(unread, ended, call); break;
        case State::parameter_or_end: moved = read_parameter_or_end(unread, ended, call); break;
        case State::value_begins: moved = read_first_newline(unread); break;
        case State::value: moved = read_value(unread, ended, call); break;
        case State::closing:
          skip_json_whitespace(unread);
          moved = begins_with(unread, kCallEnd, ended);
          if (moved == Match::no && !(ended && kCallEnd.starts_with(unread))) return Progress::malformed;
          if (moved == Match::unclear) return Progress::needs_more;
          unread.remove_prefix(moved == Match::yes ? kCallEnd.size() : unread.size());
          state_ = State::over;
          return Progress::call_complete;
        case State::over: return Progress::section_over;
      }
      if (moved == Match::no) return Progress::malformed;
      if (moved == Match::unclear) return Progress::needs_more;
    }
  }

 private:
  enum class State { function, parameter_or_end, value_begins, value, closing, over };

  Match read_function(std::string_view& unread, bool ended, ToolCall& call) {
    skip_json_whitespace(unread);
    std::string_view name;
    const Match match = take_tag_with_name(kFunction, unread, ended, name);
    if (match != Match::yes) return match;
    call.name = name;
    call.has_started = true;
    call.arguments = "{";
    tool_ = schemas_.find(name);
    state_ = State::parameter_or_end;
    return Match::yes;
  }

  Match read_parameter_or_end(std::string_view& unread, bool ended, ToolCall& call) {
    skip_json_whitespace(unread);
    const Match end = begins_with(unread, kFunctionEnd, ended);
    if (end == Match::unclear) return end;
    if (end == Match::yes) {
      unread.remove_prefix(kFunctionEnd.size());
      call.arguments += '}';
      state_ = State::closing;
      return Match::yes;
    }
    std::string_view after = unread;
    std::string_view key;
    const Match match = take_tag_with_name(kParameter, after, ended, key);
    if (match != Match::yes) return match;
    if (!keys_.emplace(key).second) return Match::no;  // a duplicate key
    unread = after;
    begin_argument(key, call);
    return Match::yes;
  }

  void begin_argument(std::string_view key, ToolCall& call) {
    if (keys_.size() > 1) call.arguments += ", ";
    call.arguments += '"';
    append_json_escaped(key, call.arguments);
    call.arguments += "\": ";
    types_ = tool_ ? tool_->types_of(key) : JsonTypes(JsonTypes::string);
    if (is_plain_string()) call.arguments += '"';
    value_.clear();
    state_ = State::value_begins;
  }

  Match read_first_newline(std::string_view& unread) {
    if (unread.empty()) return Match::unclear;
    if (unread.front() == '\n') unread.remove_prefix(1);
    state_ = State::value;
    return Match::yes;
  }

  // Leaves a final newline unread until the next text shows whether it belongs to the value or to the tag.
  Match read_value(std::string_view& unread, bool ended, ToolCall& call) {
    const TagSearch end = find_tag(unread, kParameterEnd, ended);
    std::string_view part = unread.substr(0, end.at);
    if (part.ends_with('\n')) part.remove_suffix(1);
    if (is_plain_string()) {
      append_json_escaped(part, call.arguments);
    } else {
      value_ += part;
    }
    if (!end.found) {
      unread.remove_prefix(part.size());
      return Match::unclear;
    }
    unread.remove_prefix(end.at + kParameterEnd.size());
    if (is_plain_string()) {
      call.arguments += '"';
    } else {
      append_typed_value(value_, types_, call.arguments);
    }
    state_ = State::parameter_or_end;
    return Match::yes;
  }

  static Match take_tag_with_name(std::string_view tag, std::string_view& unread, bool ended,
                                  std::string_view& name) {
    const Match match = begins_with(unread, tag, ended);
    if (match != Match::yes) return match;
    std::string_view after = unread.substr(tag.size());
    const Match named = take_name(after, ">", ended, name);
    if (named == Match::yes) unread = after;
    return named;
  }

  // The value can only be a string, so it is passed on as it arrives.
  bool is_plain_string() const { return types_ == JsonTypes(JsonTypes::string); }

  const ToolSchemas& schemas_;
  State state_ = State::over;
  const ToolSchemas::Tool* tool_ = nullptr;
  std::set<std::string, std::less<>> keys_;
  JsonTypes types_;
  std::string value_;  // of a parameter that may be of another type than string
};

}  // namespace

std::unique_ptr<ToolCallReader> make_qwen_xml_reader(const ToolSchemas& schemas) {
  return std::make_unique<QwenXmlReader>(schemas);
}

}  // namespace moeflux
