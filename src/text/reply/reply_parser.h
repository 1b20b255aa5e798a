#pragma once
// ReplyParser splits a generated reply into reasoning, text and tool calls, and reports them as events while
// it arrives.
//
// The concatenated events are independent of how the reply is cut into pieces. Only what may be the beginning
// of a tag is held back, and newlines that a tag after them would trim. Only tags and trimmed newlines are
// dropped. A call that is malformed, or cut short by the end of the reply, becomes text, byte for byte.
// docs/replies.md has the formats, the trimming and the types of values.
//
// A call is reported while it is written: started, arguments in fragments, finished. A call that turns out to
// be malformed after it started is abandoned, and its text follows as text. A consumer that cannot undo a
// started call waits for ToolCallFinished, which has everything.
//
// Text should be UTF-8 and may be cut anywhere. Invalid bytes pass through unchanged, also into the JSON of
// arguments. Time is linear in the reply; memory is bounded by ReplyLimits. States: reading, finished. One
// thread at a time; the sink is called before push() or finish() returns.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/function_ref.h"
#include "base/sizes.h"
#include "text/reply/reply_format.h"
#include "text/reply/tool_call_reader.h"
#include "text/reply/tool_schemas.h"

namespace moeflux {

// Views in events are valid during the call of the sink. Text is never empty.
struct ReplyText {
  std::string_view text;
};
struct ReplyReasoning {
  std::string_view text;
};
// `index` counts started calls from 0.
struct ToolCallStarted {
  std::uint32_t index;
  std::string_view name;
};
// The next part of the arguments' JSON. All fragments together are `arguments_json` of ToolCallFinished.
struct ToolCallArguments {
  std::uint32_t index;
  std::string_view json_fragment;
};
struct ToolCallFinished {
  std::uint32_t index;
  std::string_view name;
  std::string_view arguments_json;  // an object
};
// The call is malformed or cut short; its text follows as text.
struct ToolCallAbandoned {
  std::uint32_t index;
};
using ReplyEvent = std::variant<ReplyText, ReplyReasoning, ToolCallStarted, ToolCallArguments,
                                ToolCallFinished, ToolCallAbandoned>;
using ReplySink = FunctionRef<void(const ReplyEvent&)>;

struct ReplyLimits {
  std::size_t call_bytes = 16 * kMiB;  // of one call as written, and of its arguments as JSON
  std::uint32_t calls = 128;           // started calls; later calls are text
};

// How a reply ended.
struct ReplyEnd {
  std::uint32_t finished_calls = 0;
  std::uint32_t malformed_calls = 0;  // became text
  bool incomplete_call = false;       // the reply ended inside a call, which became text
  bool incomplete_reasoning = false;  // the reply ended inside its reasoning
};

// Holds newlines back until it is known whether they are trimmed.
class NewlineKeeper {
 public:
  // Passes `text` to `show`, except the newlines at its end, which wait.
  void push(std::string_view text, FunctionRef<void(std::string_view)> show);
  void release(FunctionRef<void(std::string_view)> show);
  void drop() { held_ = 0; }
  // Drops the newlines that come next.
  void drop_next() { drops_next_ = true; }

 private:
  std::uint64_t held_ = 0;  // newlines
  bool drops_next_ = false;
};

class ReplyParser {
 public:
  // `schemas` outlives the parser.
  ReplyParser(ReplyFormat format, const ToolSchemas& schemas, ReplyLimits limits = {});

  void push(std::string_view piece, ReplySink sink);

  // Ends the reply. Must be the last call.
  ReplyEnd finish(ReplySink sink);

  // Bytes that wait for more text, less than 1 KiB. The next push() reads them and its piece, so their sum
  // over all pushes bounds the work.
  std::size_t unread_bytes() const { return unread_.size(); }

 private:
  enum class State : std::uint8_t { opening, reasoning, text, call };

  // Each consumes text from the front of `unread` and returns false if it needs more.
  void read(std::string_view& unread, ReplySink sink);
  bool read_opening(std::string_view& unread);
  bool read_reasoning(std::string_view& unread, ReplySink sink);
  bool read_text(std::string_view& unread, ReplySink sink);
  bool read_call(std::string_view& unread, ReplySink sink);

  bool expects_calls() const { return reader_ && calls_ < limits_.calls; }
  void emit_text(std::string_view text, ReplySink sink);
  void report_progress(ReplySink sink);
  void finish_call(ReplySink sink);
  void abandon_call(ReplySink sink);
  void next_call();

  const ReplyLimits limits_;
  const std::unique_ptr<ToolCallReader> reader_;  // null: calls are not parsed
  State state_;
  bool ended_ = false;
  std::string unread_;
  NewlineKeeper text_;
  NewlineKeeper reasoning_;
  bool only_newlines_since_call_ = false;
  ReplyEnd end_;

  // The call that is being read.
  std::uint32_t calls_ = 0;  // started so far
  ToolCall call_;
  std::string call_text_;               // as written so far, with the opening tag
  bool reported_ = false;               // ToolCallStarted was sent
  std::size_t reported_arguments_ = 0;  // bytes of call_.arguments that were sent
};

}  // namespace moeflux
