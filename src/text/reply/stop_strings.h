#pragma once
// StopStrings ends a reply at the first of the caller's stop strings, in text that arrives in pieces.
//
// The result is independent of how the text is cut. The occurrence that begins first wins; of those that
// begin together, the shortest, because it is complete first. The stop string and everything after it are
// never shown. Only what may be the beginning of a stop string is held back, at most 255 bytes. A match is
// decided at once unless a string that began before it may still complete.
//
// One Aho-Corasick automaton for all strings: time linear in the text, memory for at most 16,385 nodes of 12
// bytes. push() allocates only while its buffer grows to the longest piece. States: reading, stopped (by push
// or finish), finished. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moeflux {

class StopStrings {
 public:
  static constexpr std::size_t kMaxStrings = 64;
  static constexpr std::size_t kMaxBytes = 256;  // of one string

  struct Pushed {
    std::string_view text;             // to show now; valid until the next call
    std::optional<std::size_t> which;  // index of the stop string that was found

    bool stopped() const { return which.has_value(); }
  };

  // Fails with `invalid_argument` unless there are 1 to 64 strings of 1 to 256 bytes each; names the first
  // bad one. Of equal strings the first is found.
  static Status check(std::span<const std::string> stops);

  // Requires: check(stops) succeeds.
  explicit StopStrings(std::span<const std::string> stops);

  // Adds a piece of text. Once stopped, further text is ignored and shows nothing.
  Pushed push(std::string_view piece);

  // Ends the text and returns what was held back, up to a complete stop string if there is one. push() must
  // not follow.
  Pushed finish();

 private:
  // A node is a prefix of some strings: the `depth` bytes on the path from the root.
  struct Node {
    std::uint16_t first_child = 0;  // 0: none
    std::uint16_t next_sibling = 0;
    std::uint16_t fallback = 0;  // the longest proper suffix that is a node
    std::uint16_t ending = 0;    // the longest suffix, including itself, that is a whole string; 0: none
    std::uint16_t depth = 0;
    std::uint8_t byte = 0;
    std::uint8_t string = 0;  // index of the string, if `ending` is the node itself
  };

  struct Match {
    std::size_t begin;  // in pending_
    std::size_t which;
  };

  std::uint16_t child(std::uint16_t node, std::uint8_t byte) const;
  void add(std::string_view text, std::size_t which);
  void link();
  bool advance(std::uint8_t byte, std::size_t end);
  Pushed stop_at_match();

  std::vector<Node> nodes_;
  std::uint16_t at_ = 0;
  std::string pending_;    // bytes shown by the last call, then bytes held back
  std::size_t shown_ = 0;  // bytes of pending_ that the last call returned
  std::optional<Match> match_;
  bool stopped_ = false;
  bool finished_ = false;
};

}  // namespace moeflux
