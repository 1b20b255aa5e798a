#include "text/reply/reply_parser.h"

#include <algorithm>

#include "base/check.h"

namespace moeflux {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";

ToolCallReader::Progress read_within(ToolCallReader& reader, std::string_view& unread, std::size_t room,
                                     bool ended, ToolCall& call) {
  std::string_view within = unread.substr(0, room);
  const std::size_t offered = within.size();
  const auto progress = reader.read(within, ended && offered == unread.size(), call);
  unread.remove_prefix(offered - within.size());
  return progress;
}

}  // namespace

void NewlineKeeper::push(std::string_view text, FunctionRef<void(std::string_view)> show) {
  if (drops_next_) {
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
    if (text.empty()) return;
    drops_next_ = false;
  }
  const std::size_t shown = text.find_last_not_of('\n') + 1;  // npos + 1 is 0
  if (shown > 0) {
    release(show);
    show(text.substr(0, shown));
  }
  held_ += text.size() - shown;
}

void NewlineKeeper::release(FunctionRef<void(std::string_view)> show) {
  constexpr std::string_view kNewlines = "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n";
  while (held_ > 0) {
    const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(held_, kNewlines.size()));
    show(kNewlines.substr(0, count));
    held_ -= count;
  }
}

ReplyParser::ReplyParser(ReplyFormat format, const ToolSchemas& schemas, ReplyLimits limits)
    : limits_(limits),
      reader_(make_tool_call_reader(format.tools, schemas)),
      state_(!format.reasoning                ? State::text
             : format.starts_inside_reasoning ? State::reasoning
                                              : State::opening) {
  MF_REQUIRE(format.reasoning || !format.starts_inside_reasoning,
             "a reply inside reasoning knows of reasoning");
  reasoning_.drop_next();
}

void ReplyParser::push(std::string_view piece, ReplySink sink) {
  MF_REQUIRE(!ended_, "no text follows the end of a reply");
  unread_ += piece;
  std::string_view unread = unread_;
  read(unread, sink);
  unread_.erase(0, unread_.size() - unread.size());
}

ReplyEnd ReplyParser::finish(ReplySink sink) {
  MF_REQUIRE(!ended_, "a reply ends once");
  ended_ = true;
  std::string_view unread = unread_;
  read(unread, sink);
  MF_REQUIRE(unread.empty() && state_ != State::call, "nothing of a reply is lost");
  if (state_ == State::reasoning) {
    reasoning_.release([&](std::string_view text) { sink(ReplyReasoning{text}); });
    end_.incomplete_reasoning = true;
  }
  if (only_newlines_since_call_) text_.drop();
  text_.release([&](std::string_view text) { sink(ReplyText{text}); });
  return end_;
}

void ReplyParser::read(std::string_view& unread, ReplySink sink) {
  bool consumed = true;
  while (consumed) {
    switch (state_) {
      case State::opening: consumed = read_opening(unread); break;
      case State::reasoning: consumed = read_reasoning(unread, sink); break;
      case State::text: consumed = read_text(unread, sink); break;
      case State::call: consumed = read_call(unread, sink); break;
    }
  }
}

// Newlines are text unless <think> follows them.
bool ReplyParser::read_opening(std::string_view& unread) {
  const std::size_t newlines = std::min(unread.find_first_not_of('\n'), unread.size());
  text_.push(unread.substr(0, newlines), [](std::string_view) {});  // shows nothing: newlines are held back
  unread.remove_prefix(newlines);
  const Match match = begins_with(unread, kThink, ended_);
  if (match == Match::unclear) return false;
  state_ = State::text;
  if (match == Match::yes) {
    unread.remove_prefix(kThink.size());
    text_.drop();
    state_ = State::reasoning;
  }
  return true;
}

bool ReplyParser::read_reasoning(std::string_view& unread, ReplySink sink) {
  const TagSearch end = find_tag(unread, kThinkEnd, ended_);
  reasoning_.push(unread.substr(0, end.at), [&](std::string_view text) { sink(ReplyReasoning{text}); });
  unread.remove_prefix(end.at);
  if (!end.found) return false;
  unread.remove_prefix(kThinkEnd.size());
  reasoning_.drop();
  text_.drop_next();
  state_ = State::text;
  return true;
}

bool ReplyParser::read_text(std::string_view& unread, ReplySink sink) {
  if (!expects_calls()) {
    emit_text(unread, sink);
    if (!only_newlines_since_call_) text_.release([&](std::string_view text) { sink(ReplyText{text}); });
    unread = {};
    return false;
  }
  const std::string_view tag = reader_->opening_tag();
  const TagSearch opening = find_tag(unread, tag, ended_);
  emit_text(unread.substr(0, opening.at), sink);
  unread.remove_prefix(opening.at);
  if (!opening.found) return false;
  unread.remove_prefix(tag.size());
  next_call();
  call_text_ = tag;
  reader_->begin();
  state_ = State::call;
  return true;
}

void ReplyParser::emit_text(std::string_view text, ReplySink sink) {
  text_.push(text, [&](std::string_view shown) {
    only_newlines_since_call_ = false;
    sink(ReplyText{shown});
  });
}

bool ReplyParser::read_call(std::string_view& unread, ReplySink sink) {
  using Progress = ToolCallReader::Progress;
  const std::size_t room = limits_.call_bytes - std::min(limits_.call_bytes, call_text_.size());
  const std::string_view before = unread;
  const Progress progress = read_within(*reader_, unread, room, ended_, call_);
  call_text_ += before.substr(0, before.size() - unread.size());

  switch (progress) {
    case Progress::needs_more:
      if (ended_ || before.size() >= room) {
        abandon_call(sink);
        return true;
      }
      report_progress(sink);
      return false;
    case Progress::call_complete:
      if (call_.arguments.size() > limits_.call_bytes || calls_ == limits_.calls) {
        abandon_call(sink);
      } else {
        finish_call(sink);
      }
      return true;
    case Progress::section_over:
      call_text_.clear();
      state_ = State::text;
      return true;
    case Progress::malformed: abandon_call(sink); return true;
  }
  return false;
}

// Calls count towards the limit when they start; a call beyond the limit never starts.
void ReplyParser::report_progress(ReplySink sink) {
  if (!call_.has_started || calls_ == limits_.calls) return;
  if (!reported_) sink(ToolCallStarted{calls_, call_.name});
  reported_ = true;
  if (call_.arguments.size() == reported_arguments_) return;
  sink(ToolCallArguments{calls_, std::string_view(call_.arguments).substr(reported_arguments_)});
  reported_arguments_ = call_.arguments.size();
}

void ReplyParser::finish_call(ReplySink sink) {
  report_progress(sink);
  sink(ToolCallFinished{calls_, call_.name, call_.arguments});
  ++calls_;
  ++end_.finished_calls;
  text_.drop();
  only_newlines_since_call_ = true;
  next_call();
}

// At the end of the reply an abandoned call is incomplete, not malformed: a malformed one is found earlier.
void ReplyParser::abandon_call(ReplySink sink) {
  report_progress(sink);
  if (reported_) sink(ToolCallAbandoned{calls_++});
  if (ended_) {
    end_.incomplete_call = true;
  } else {
    ++end_.malformed_calls;
  }
  emit_text(call_text_, sink);
  next_call();
  state_ = State::text;
}

void ReplyParser::next_call() {
  call_.clear();
  call_text_.clear();
  reported_ = false;
  reported_arguments_ = 0;
}

}  // namespace moeflux
