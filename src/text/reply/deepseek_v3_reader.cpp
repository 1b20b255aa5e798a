// DeepSeek V3: a section of calls, with whitespace between its parts:
//   <｜tool▁calls▁begin｜> CALL* <｜tool▁calls▁end｜>
// where CALL is for V3 and R1, with TYPE "function":
//   <｜tool▁call▁begin｜>TYPE<｜tool▁sep｜>NAME\n```json {...} ``` <｜tool▁call▁end｜>
// and for V3.1:
//   <｜tool▁call▁begin｜>NAME<｜tool▁sep｜> {...} <｜tool▁call▁end｜>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "text/json/json_automaton.h"
#include "text/reply/tool_call_reader.h"

namespace moeflux {
namespace {

constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kCallEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kSectionEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kFence = "```";
constexpr std::string_view kFenceOfJson = "```json";

class DeepSeekV3Reader final : public ToolCallReader {
 public:
  std::string_view opening_tag() const override { return "<｜tool▁calls▁begin｜>"; }

  void begin() override {
    state_ = State::call_or_end;
    has_calls_ = false;
  }

  Progress read(std::string_view& unread, bool ended, ToolCall& call) override {
    for (;;) {
      if (whitespace_may_come()) skip_json_whitespace(unread);
      Match moved = Match::no;
      switch (state_) {
        case State::call_or_end: moved = read_call_or_end(unread, ended); break;
        case State::head: moved = read_head(unread, ended); break;
        case State::name_or_arguments: moved = read_name_or_arguments(unread, call); break;
        case State::name: moved = read_name(unread, ended, call); break;
        case State::fence: moved = take(kFenceOfJson, State::before_arguments, unread, ended); break;
        case State::before_arguments:
          if (unread.empty()) return Progress::needs_more;
          if (unread.front() != '{') return Progress::malformed;
          state_ = State::arguments;
          moved = Match::yes;
          break;
        case State::arguments: moved = read_arguments(unread, call); break;
        case State::fence_end: moved = take(kFence, State::call_end, unread, ended); break;
        case State::call_end:
          moved = take(kCallEnd, State::call_or_end, unread, ended);
          has_calls_ = true;
          if (moved == Match::yes) return Progress::call_complete;
          if (moved == Match::no && ended && kCallEnd.starts_with(unread)) {
            unread = {};
            state_ = State::over;
            return Progress::call_complete;
          }
          break;
        case State::over: return Progress::section_over;
      }
      if (moved == Match::no) return Progress::malformed;
      if (moved == Match::unclear) return Progress::needs_more;
    }
  }

 private:
  enum class State {
    call_or_end,
    head,
    name_or_arguments,
    name,
    fence,
    before_arguments,
    arguments,
    fence_end,
    call_end,
    over
  };

  bool whitespace_may_come() const {
    return state_ != State::head && state_ != State::name && state_ != State::arguments &&
           state_ != State::over;
  }

  Match read_call_or_end(std::string_view& unread, bool ended) {
    const Match call = take(kCallBegin, State::head, unread, ended);
    if (call != Match::no || !has_calls_) return call;  // a section has at least one call
    // After a call the reply may end here or inside the tag.
    if (ended && kSectionEnd.starts_with(unread)) {
      unread = {};
      state_ = State::over;
      return Match::yes;
    }
    return take(kSectionEnd, State::over, unread, ended);
  }

  Match read_head(std::string_view& unread, bool ended) {
    std::string_view head;
    const Match match = take_name(unread, kSeparator, ended, head);
    if (match != Match::yes) return match;
    head_ = head;
    state_ = State::name_or_arguments;
    return Match::yes;
  }

  Match read_name_or_arguments(std::string_view& unread, ToolCall& call) {
    if (unread.empty()) return Match::unclear;
    fenced_ = unread.front() != '{';
    json_ = JsonAutomaton();
    state_ = fenced_ ? State::name : State::before_arguments;
    if (!fenced_) start(head_, call);
    return Match::yes;
  }

  Match read_name(std::string_view& unread, bool ended, ToolCall& call) {
    std::string_view name;
    const Match match = take_name(unread, "\n", ended, name);
    if (match != Match::yes) return match;
    start(name, call);
    state_ = State::fence;
    return Match::yes;
  }

  static void start(std::string_view name, ToolCall& call) {
    call.name = name;
    call.has_started = true;
  }

  Match read_arguments(std::string_view& unread, ToolCall& call) {
    std::size_t taken = 0;
    bool fits = true;
    while (taken < unread.size() && !json_.complete() && fits) {
      fits = json_.accept(unread[taken]);
      if (fits) ++taken;
    }
    call.arguments += unread.substr(0, taken);
    unread.remove_prefix(taken);
    if (!fits) return Match::no;
    if (!json_.complete()) return Match::unclear;
    state_ = fenced_ ? State::fence_end : State::call_end;
    return Match::yes;
  }

  Match take(std::string_view word, State next, std::string_view& unread, bool ended) {
    const Match match = begins_with(unread, word, ended);
    if (match == Match::yes) {
      unread.remove_prefix(word.size());
      state_ = next;
    }
    return match;
  }

  State state_ = State::over;
  bool has_calls_ = false;
  std::string head_;     // the text before the separator
  bool fenced_ = false;  // ```json ... ```
  JsonAutomaton json_;
};

}  // namespace

std::unique_ptr<ToolCallReader> make_deepseek_v3_reader() { return std::make_unique<DeepSeekV3Reader>(); }

}  // namespace moeflux
