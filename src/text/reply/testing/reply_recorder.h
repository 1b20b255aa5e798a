#pragma once
// The events of a ReplyParser as lines that a test can compare. Test code only.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/overloaded.h"
#include "text/json/json_automaton.h"
#include "text/reply/reply_parser.h"

namespace moeflux {

struct RecordedReply {
  // "text: ...", "reasoning: ...", "started 0: NAME", "arguments 0: JSON", "finished 0: NAME JSON",
  // "abandoned 0". Adjacent lines of one kind are joined.
  std::vector<std::string> lines;
  std::string text;                // concatenated
  std::string reasoning;           // concatenated
  std::vector<std::string> calls;  // the finished ones: "NAME JSON"
  ReplyEnd end;
  std::size_t unread_bytes = 0;  // summed over all pushes

  bool same_as(const RecordedReply& other) const {
    return lines == other.lines && end.finished_calls == other.end.finished_calls &&
           end.malformed_calls == other.end.malformed_calls &&
           end.incomplete_call == other.end.incomplete_call &&
           end.incomplete_reasoning == other.end.incomplete_reasoning;
  }
};

// Records events and checks their contracts.
class ReplyRecorder {
 public:
  void record(const ReplyEvent& event) {
    std::visit(overloaded{
                   [&](const ReplyText& e) {
                     add("text: ", e.text);
                     reply_.text += e.text;
                   },
                   [&](const ReplyReasoning& e) {
                     add("reasoning: ", e.text);
                     reply_.reasoning += e.text;
                   },
                   [&](const ToolCallStarted& e) {
                     MF_REQUIRE(!in_call_ && e.index == next_index_++, "calls are counted as they start");
                     in_call_ = true;
                     fragments_.clear();
                     add(fmt::format("started {}: ", e.index), e.name);
                   },
                   [&](const ToolCallArguments& e) {
                     MF_REQUIRE(in_call_ && e.index + 1 == next_index_,
                                "arguments are of the call that started");
                     add(fmt::format("arguments {}: ", e.index), e.json_fragment);
                     fragments_ += e.json_fragment;
                   },
                   [&](const ToolCallFinished& e) {
                     MF_REQUIRE(in_call_ && e.index + 1 == next_index_, "the call that started finishes");
                     MF_REQUIRE(fragments_ == e.arguments_json, "the fragments are the arguments");
                     MF_REQUIRE(e.arguments_json.starts_with('{') && is_json(e.arguments_json),
                                "arguments are an object");
                     in_call_ = false;
                     reply_.calls.push_back(fmt::format("{} {}", e.name, e.arguments_json));
                     add(fmt::format("finished {}: ", e.index), reply_.calls.back());
                   },
                   [&](const ToolCallAbandoned& e) {
                     MF_REQUIRE(in_call_ && e.index + 1 == next_index_, "the call that started is abandoned");
                     in_call_ = false;
                     reply_.lines.push_back(fmt::format("abandoned {}", e.index));
                     kind_.clear();
                   },
               },
               event);
  }

  RecordedReply take(ReplyEnd end) {
    MF_REQUIRE(!in_call_, "a call that starts finishes or is abandoned");
    reply_.end = end;
    return std::move(reply_);
  }

 private:
  void add(std::string_view kind, std::string_view text) {
    MF_REQUIRE(!text.empty(), "no event is empty");
    if (kind != kind_) reply_.lines.emplace_back(kind);
    kind_ = kind;
    reply_.lines.back() += text;
  }

  RecordedReply reply_;
  std::string kind_;  // of the last line
  bool in_call_ = false;
  std::uint32_t next_index_ = 0;
  std::string fragments_;
};

inline RecordedReply record_reply(std::span<const std::string_view> pieces, ReplyFormat format,
                                  const ToolSchemas& schemas, ReplyLimits limits = {}) {
  ReplyParser parser(format, schemas, limits);
  ReplyRecorder recorder;
  const auto sink = [&](const ReplyEvent& event) { recorder.record(event); };
  std::size_t unread = 0;
  for (const std::string_view piece : pieces) {
    parser.push(piece, sink);
    MF_REQUIRE(parser.unread_bytes() < 1024, "little text waits");
    unread += parser.unread_bytes();
  }
  const ReplyEnd end = parser.finish(sink);
  RecordedReply reply = recorder.take(end);
  reply.unread_bytes = unread;
  return reply;
}

inline std::vector<std::string_view> in_single_bytes(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (std::size_t i = 0; i < text.size(); ++i) pieces.push_back(text.substr(i, 1));
  return pieces;
}

inline std::vector<std::string_view> randomly_cut(std::string_view text, std::minstd_rand& random) {
  std::vector<std::string_view> pieces;
  const std::size_t longest = 1 + random() % 24;
  while (!text.empty()) {
    const std::size_t size = 1 + random() % longest;
    pieces.push_back(text.substr(0, size));
    text.remove_prefix(pieces.back().size());
  }
  return pieces;
}

}  // namespace moeflux
