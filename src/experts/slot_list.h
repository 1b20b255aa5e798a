#pragma once
// Intrusive doubly linked lists of numbered slots.
//
// One array has the links of all slots; a SlotList is the two ends of a chain through it. A slot is in at
// most one list per array. Every operation is a few stores; nothing allocates. One thread at a time.

#include <cstdint>
#include <vector>

namespace moeflux {

inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

struct SlotLink {
  std::uint32_t before = kNoSlot, after = kNoSlot;
};
using SlotLinks = std::vector<SlotLink>;

struct SlotList {
  std::uint32_t first = kNoSlot, last = kNoSlot;

  bool is_empty() const { return first == kNoSlot; }

  void push_back(SlotLinks& links, std::uint32_t slot) {
    links[slot] = {last, kNoSlot};
    (last == kNoSlot ? first : links[last].after) = slot;
    last = slot;
  }
  void push_front(SlotLinks& links, std::uint32_t slot) {
    links[slot] = {kNoSlot, first};
    (first == kNoSlot ? last : links[first].before) = slot;
    first = slot;
  }
  void remove(SlotLinks& links, std::uint32_t slot) {
    const SlotLink link = links[slot];
    (link.before == kNoSlot ? first : links[link.before].after) = link.after;
    (link.after == kNoSlot ? last : links[link.after].before) = link.before;
    links[slot] = {};
  }
};

}  // namespace moeflux
