#pragma once
// Where a reply must stop: strings of the caller, looked for in text that arrives in pieces.
//
// The answer does not depend on how the text was cut. Of all occurrences in the whole text the one that
// begins first wins, and of those that begin together the shortest: it is there first. The stop string itself
// and what follows it is never shown. Held back is only what may be the beginning of a stop string, at most
// 255 bytes; a match is decided at once unless a longer string that began before it may still come true.
//
// One automaton (Aho and Corasick) for all strings: time linear in the text; memory for at most 16,385 nodes
// of 12 bytes, and push() allocates only while its buffer grows to the longest piece. States: reading,
// stopped (by push or finish), finished. One thread at a time.

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
    std::string_view text;             // can be shown now; valid until the next call
    std::optional<std::size_t> which;  // the string that was found, as an index into the caller's list

    bool stopped() const { return which.has_value(); }
  };

  // 1 to 64 strings of 1 to 256 bytes each, else `invalid_argument` naming the first that is not. Of equal
  // strings the first is found.
  static Status check(std::span<const std::string> stops);

  // Requires that check() has nothing against them.
  explicit StopStrings(std::span<const std::string> stops);

  // More of the text. Once stopped, further text is ignored and shows nothing.
  Pushed push(std::string_view piece);

  // There is no more text: what was held back, up to a stop string if one was waiting for a longer one to
  // come true. push() must not follow.
  Pushed finish();

 private:
  // A node stands for the beginning of some strings: the bytes on the way from the root, `depth` of them.
  struct Node {
    std::uint16_t first_child = 0;  // 0: none
    std::uint16_t next_sibling = 0;
    std::uint16_t fallback = 0;  // the longest proper suffix that is a node
    std::uint16_t ending = 0;    // the longest suffix, itself included, that is a whole string; 0: none
    std::uint16_t depth = 0;
    std::uint8_t byte = 0;
    std::uint8_t string = 0;  // which string it is, where ending is the node itself
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
  std::string pending_;    // shown by the last call, then held back
  std::size_t shown_ = 0;  // bytes of pending_ that the last call returned
  std::optional<Match> match_;
  bool stopped_ = false;
  bool finished_ = false;
};

}  // namespace moeflux
