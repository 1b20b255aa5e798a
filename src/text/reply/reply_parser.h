#pragma once
// What a generated reply means: reasoning, text and tool calls, told as they arrive.
//
// The joined events do not depend on how the reply was cut into pieces. Held back is only what may be the
// beginning of a tag, and newlines that a tag may make superfluous. Nothing is lost: what is not a
// well-formed call comes out as text, byte for byte, and so does a call that the end of the reply cut short.
// docs/replies.md has the formats, what is trimmed, and how values get their types.
//
// A call is told while it is being written: started, arguments in fragments, finished. When it turns out not
// to be one after it has started it is abandoned, and its text follows as text. Who cannot take back what was
// told waits for ToolCallFinished, which has everything.
//
// Text is expected to be UTF-8; pieces may be cut anywhere. Bytes that are not pass through as they are, into
// the JSON of arguments as well. Time is linear in the reply; memory is bounded by ReplyLimits. States:
// reading, finished. One thread at a time; the sink is called before push() or finish() returns.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/function_ref.h"
#include "base/sizes.h"
#include "text/reply_format.h"
#include "text/tool_call_reader.h"
#include "text/tool_schemas.h"

namespace moeflux {

// The views of events are valid for the length of the call of the sink. Text is never empty.
struct ReplyText {
  std::string_view text;
};
struct ReplyReasoning {
  std::string_view text;
};
// `index` counts the calls that have started, from 0.
struct ToolCallStarted {
  std::uint32_t index;
  std::string_view name;
};
// The next part of the arguments' JSON; together the fragments are `arguments_json` of ToolCallFinished.
struct ToolCallArguments {
  std::uint32_t index;
  std::string_view json_fragment;
};
struct ToolCallFinished {
  std::uint32_t index;
  std::string_view name;
  std::string_view arguments_json;  // an object
};
// It was none: forget it.
struct ToolCallAbandoned {
  std::uint32_t index;
};
using ReplyEvent = std::variant<ReplyText, ReplyReasoning, ToolCallStarted, ToolCallArguments,
                                ToolCallFinished, ToolCallAbandoned>;
using ReplySink = FunctionRef<void(const ReplyEvent&)>;

struct ReplyLimits {
  std::size_t call_bytes = 16 * kMiB;  // of one call as written, and of its arguments
  std::uint32_t calls = 128;           // that start; whatever follows is text
};

// How a reply ended.
struct ReplyEnd {
  std::uint32_t finished_calls = 0;
  std::uint32_t malformed_calls = 0;  // came out as text
  bool incomplete_call = false;       // the reply ended inside a call, which came out as text
  bool incomplete_reasoning = false;  // the reply ended inside its reasoning
};

// Keeps newlines back until it is known whether they count.
class NewlineKeeper {
 public:
  // Gives `text` to `show`, newlines at its end later.
  void give(std::string_view text, FunctionRef<void(std::string_view)> show);
  void release(FunctionRef<void(std::string_view)> show);
  void drop() { held_ = 0; }
  // Newlines that come next are dropped.
  void drop_next() { drops_next_ = true; }

 private:
  std::uint64_t held_ = 0;  // a count is enough, however many there are
  bool drops_next_ = false;
};

class ReplyParser {
 public:
  // `schemas` outlives the parser.
  ReplyParser(ReplyFormat format, const ToolSchemas& schemas, ReplyLimits limits = {});

  void push(std::string_view piece, ReplySink sink);

  // The reply is over. The last call.
  ReplyEnd finish(ReplySink sink);

  // Text that waits for more to be understood. The next push looks at this much and at its piece, so that the
  // sum of it over all pushes bounds the work; less than 1 KiB.
  std::size_t unread_bytes() const { return unread_.size(); }

 private:
  enum class State : std::uint8_t { opening, reasoning, text, call };

  // Each reads from the front of `unread`; false when there is no more to do for now.
  void read(std::string_view& unread, ReplySink sink);
  bool read_opening(std::string_view& unread);
  bool read_reasoning(std::string_view& unread, ReplySink sink);
  bool read_text(std::string_view& unread, ReplySink sink);
  bool read_call(std::string_view& unread, ReplySink sink);

  bool expects_calls() const { return reader_ && calls_ < limits_.calls; }
  void give_text(std::string_view text, ReplySink sink);
  void tell_progress(ReplySink sink);
  void finish_call(ReplySink sink);
  void abandon_call(ReplySink sink);
  void next_call();

  const ReplyLimits limits_;
  const std::unique_ptr<ToolCallReader> reader_;  // null: calls are not looked for
  State state_;
  bool ended_ = false;
  std::string unread_;
  NewlineKeeper text_;
  NewlineKeeper reasoning_;
  bool only_newlines_since_call_ = false;
  ReplyEnd end_;

  // The call that is being read.
  std::uint32_t calls_ = 0;  // have started
  ToolCall call_;
  std::string call_text_;           // as written so far, with the opening tag
  bool told_ = false;               // ToolCallStarted was
  std::size_t told_arguments_ = 0;  // bytes of call_.arguments that were
};

}  // namespace moeflux
