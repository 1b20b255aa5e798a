// Hermes: <tool_call> {"name": "NAME", "arguments": {...}} </tool_call>, with whitespace between.
//
// The members may come in any order. "parameters" is a synonym of "arguments", other members are ignored, and
// absent arguments are {}.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "text/json/json_automaton.h"
#include "text/reply/tool_call_reader.h"

namespace moeflux {
namespace {

constexpr std::string_view kCallEnd = "</tool_call>";
constexpr std::size_t kMaxWrittenName = 6 * kMaxToolNameBytes;  // \u0041 is six bytes of a name

// The text of a JSON string written without its quotes; empty if parse_json() refuses it.
std::string unescaped(const std::string& written) {
  if (written.find('\\') == std::string::npos) return written;
  const Result<Json> value = parse_json('"' + written + '"', "a name");
  const std::string* text = value ? value->get_ptr<const std::string*>() : nullptr;
  return text ? *text : std::string();
}

class HermesJsonReader final : public ToolCallReader {
 public:
  std::string_view opening_tag() const override { return "<tool_call>"; }

  void begin() override {
    state_ = State::object;
    json_ = JsonAutomaton();
    member_ = Member::other;
    in_arguments_ = false;
    has_arguments_ = false;
  }

  Progress read(std::string_view& unread, bool ended, ToolCall& call) override {
    while (state_ == State::object) {
      if (unread.empty()) return Progress::needs_more;
      if (!read_byte(unread.front(), call)) return Progress::malformed;
      unread.remove_prefix(1);
    }
    if (state_ == State::over) return Progress::section_over;
    skip_json_whitespace(unread);
    const Match end = begins_with(unread, kCallEnd, ended);
    if (end == Match::unclear) return Progress::needs_more;
    if (end == Match::no && !(ended && kCallEnd.starts_with(unread))) return Progress::malformed;
    unread.remove_prefix(end == Match::yes ? kCallEnd.size() : unread.size());
    state_ = State::over;
    return Progress::call_complete;
  }

 private:
  enum class State { object, closing, over };
  enum class Member { name, arguments, other };

  bool read_byte(char c, ToolCall& call) {
    const std::uint32_t depth = json_.depth();
    const bool in_string = json_.in_string();
    const bool begins_value = json_.expects_value() && !is_json_whitespace(c);
    if (depth == 0 && begins_value && c != '{') return false;
    if (depth == 1 && begins_value && !fits_member(c, call)) return false;
    // A refused byte changes nothing, so it does not become part of the call.
    if (!json_.accept(c)) return false;

    if (depth == 1 && begins_value && member_ == Member::arguments) in_arguments_ = true;
    if (in_arguments_) {
      call.arguments += c;
      if (json_.depth() == 1) {
        in_arguments_ = false;
        has_arguments_ = true;
      }
    } else if (depth == 1) {
      return read_in_object(c, in_string, call);
    }
    return true;
  }

  // The name is a string, the arguments are an object, and each may come once.
  bool fits_member(char c, const ToolCall& call) const {
    if (member_ == Member::name) return c == '"' && !call.has_started;
    if (member_ == Member::arguments) return c == '{' && !has_arguments_;
    return true;
  }

  bool read_in_object(char c, bool was_in_string, ToolCall& call) {
    if (json_.depth() == 0) {
      if (!call.has_started) return false;
      if (!has_arguments_) call.arguments = "{}";
      state_ = State::closing;
      return true;
    }
    if (!was_in_string) {
      if (json_.in_string()) written_.clear();
      return true;
    }
    if (json_.in_string()) {
      if (written_.size() <= kMaxWrittenName) written_ += c;  // longer names are of other members
      return true;
    }
    if (json_.string_is_key()) {
      const std::string key = unescaped(written_);
      member_ = key == "name"                               ? Member::name
                : key == "arguments" || key == "parameters" ? Member::arguments
                                                            : Member::other;
      return true;
    }
    if (member_ != Member::name) return true;
    call.name = unescaped(written_);
    call.has_started = !call.name.empty() && call.name.size() <= kMaxToolNameBytes;
    return call.has_started;
  }

  State state_ = State::over;
  JsonAutomaton json_;
  Member member_ = Member::other;  // of the outermost object, whose value comes next
  bool in_arguments_ = false;
  bool has_arguments_ = false;
  std::string written_;  // the last string of the outermost object, as written
};

}  // namespace

std::unique_ptr<ToolCallReader> make_hermes_json_reader() { return std::make_unique<HermesJsonReader>(); }

}  // namespace moeflux
