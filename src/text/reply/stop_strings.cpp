#include "text/reply/stop_strings.h"

#include <fmt/format.h>

#include "base/check.h"

namespace moeflux {

Status StopStrings::check(std::span<const std::string> stops) {
  if (stops.empty() || stops.size() > kMaxStrings) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("stop strings: expected 1 to {} strings, found {}", kMaxStrings, stops.size())};
  }
  for (std::size_t i = 0; i < stops.size(); ++i) {
    if (!stops[i].empty() && stops[i].size() <= kMaxBytes) continue;
    return Error{ErrorCode::invalid_argument, fmt::format("stop string {}: expected 1 to {} bytes, found {}",
                                                          i, kMaxBytes, stops[i].size())};
  }
  return {};
}

StopStrings::StopStrings(std::span<const std::string> stops) {
  MF_REQUIRE(check(stops).has_value(), "the stop strings were checked");
  nodes_.emplace_back();
  for (std::size_t i = 0; i < stops.size(); ++i) add(stops[i], i);
  link();
}

std::uint16_t StopStrings::child(std::uint16_t node, std::uint8_t byte) const {
  std::uint16_t next = nodes_[node].first_child;
  while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].next_sibling;
  return next;
}

void StopStrings::add(std::string_view text, std::size_t which) {
  std::uint16_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    std::uint16_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint16_t>(nodes_.size());  // fits: at most 64 * 256 nodes and the root
      nodes_.push_back({.next_sibling = nodes_[node].first_child,
                        .depth = static_cast<std::uint16_t>(nodes_[node].depth + 1),
                        .byte = byte});
      nodes_[node].first_child = next;
    }
    node = next;
  }
  if (nodes_[node].ending != 0) return;
  nodes_[node].ending = node;
  nodes_[node].string = static_cast<std::uint8_t>(which);
}

// Breadth first: a fallback is shallower than its node, so it is complete when its node needs it.
void StopStrings::link() {
  std::vector<std::uint16_t> queue{0};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::uint16_t parent = queue[i];
    for (std::uint16_t node = nodes_[parent].first_child; node != 0; node = nodes_[node].next_sibling) {
      queue.push_back(node);
      std::uint16_t fallback = nodes_[parent].fallback;
      if (parent != 0) {
        std::uint16_t next = child(fallback, nodes_[node].byte);
        while (next == 0 && fallback != 0) {
          fallback = nodes_[fallback].fallback;
          next = child(fallback, nodes_[node].byte);
        }
        fallback = next;
      }
      nodes_[node].fallback = fallback;
      if (nodes_[node].ending == 0) nodes_[node].ending = nodes_[fallback].ending;
    }
  }
}

// Reads the byte that ends at `end` in pending_. True if the match is decided: no string that begins before
// it can still complete.
bool StopStrings::advance(std::uint8_t byte, std::size_t end) {
  std::uint16_t next = child(at_, byte);
  while (next == 0 && at_ != 0) {
    at_ = nodes_[at_].fallback;
    next = child(at_, byte);
  }
  at_ = next;
  if (const std::uint16_t ending = nodes_[at_].ending; ending != 0) {
    const std::size_t begin = end - nodes_[ending].depth;
    if (!match_ || begin < match_->begin) match_ = Match{begin, nodes_[ending].string};
  }
  return match_ && end - nodes_[at_].depth >= match_->begin;
}

StopStrings::Pushed StopStrings::stop_at_match() {
  stopped_ = true;
  shown_ = match_->begin;
  return {std::string_view(pending_).substr(0, shown_), match_->which};
}

StopStrings::Pushed StopStrings::push(std::string_view piece) {
  MF_REQUIRE(!finished_, "no text follows the end of the text");
  if (stopped_) return {};
  pending_.erase(0, shown_);
  if (match_) match_->begin -= shown_;
  shown_ = 0;

  const std::size_t held = pending_.size();
  pending_.append(piece);
  for (std::size_t i = held; i < pending_.size(); ++i) {
    if (advance(static_cast<std::uint8_t>(pending_[i]), i + 1)) return stop_at_match();
  }
  // An undecided match begins after the prefix at_, so it is held back too.
  shown_ = pending_.size() - nodes_[at_].depth;
  return {std::string_view(pending_).substr(0, shown_), std::nullopt};
}

StopStrings::Pushed StopStrings::finish() {
  MF_REQUIRE(!finished_, "a text ends once");
  finished_ = true;
  if (stopped_) return {};
  pending_.erase(0, shown_);
  if (match_) {
    match_->begin -= shown_;
    return stop_at_match();
  }
  shown_ = pending_.size();
  return {pending_, std::nullopt};
}

}  // namespace moeflux
