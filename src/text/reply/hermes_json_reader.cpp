// <tool_call> {"name": "NAME", "arguments": {...}} </tool_call>, whitespace between.
//
// The object's members may come in any order, "parameters" is another name for "arguments", other members are
// ignored, and no arguments are none: {}.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/json_scanner.h"
#include "text/tool_call_reader.h"

namespace moeflux {
namespace {

constexpr std::string_view kCallEnd = "</tool_call>";
constexpr std::size_t kMaxWrittenName = 6 * kMaxToolNameBytes;  // \u0041 is six bytes of a name

// The inside of a JSON string as text; empty for what the strict reader refuses.
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
    scanner_ = JsonScanner();
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
    const std::uint32_t depth = scanner_.depth();
    const bool in_string = scanner_.in_string();
    const bool begins_value = scanner_.expects_value() && !is_json_whitespace(c);
    if (depth == 0 && begins_value && c != '{') return false;
    if (depth == 1 && begins_value && !fits_member(c, call)) return false;
    // The scanner moves only when the byte fits, so that a refused byte is not part of the call.
    if (!scanner_.push(c)) return false;

    if (depth == 1 && begins_value && member_ == Member::arguments) in_arguments_ = true;
    if (in_arguments_) {
      call.arguments += c;
      if (scanner_.depth() == 1) {
        in_arguments_ = false;
        has_arguments_ = true;
      }
    } else if (depth == 1) {
      return read_in_object(c, in_string, call);
    }
    return true;
  }

  // A name is a string, arguments are an object, and each comes once.
  bool fits_member(char c, const ToolCall& call) const {
    if (member_ == Member::name) return c == '"' && !call.has_started;
    if (member_ == Member::arguments) return c == '{' && !has_arguments_;
    return true;
  }

  bool read_in_object(char c, bool was_in_string, ToolCall& call) {
    if (scanner_.depth() == 0) {
      if (!call.has_started) return false;
      if (!has_arguments_) call.arguments = "{}";
      state_ = State::closing;
      return true;
    }
    if (!was_in_string) {
      if (scanner_.in_string()) written_.clear();
      return true;
    }
    if (scanner_.in_string()) {
      if (written_.size() <= kMaxWrittenName) written_ += c;  // longer is no name of ours
      return true;
    }
    if (scanner_.string_is_key()) {
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
  JsonScanner scanner_;
  Member member_ = Member::other;  // whose value is next, in the outermost object
  bool in_arguments_ = false;
  bool has_arguments_ = false;
  std::string written_;  // the last string of the outermost object, as written
};

}  // namespace

std::unique_ptr<ToolCallReader> make_hermes_json_reader() { return std::make_unique<HermesJsonReader>(); }

}  // namespace moeflux
