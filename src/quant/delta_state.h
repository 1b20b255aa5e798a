#pragma once
// How the state S[key][value] of a head of a gated DeltaNet lies in memory: in strips of 16 value channels, one key after
// another in each.
//
//   value_dim = 40:  [key_dim][16] for channels 0 to 15, [key_dim][16] for 16 to 31, [key_dim][8] for the rest
//
// Channels do not depend on each other, and the rule goes through the keys twice. A strip of 128 keys is 8 KB: it comes from
// memory as one stream, and is in the first-level cache the second time. Plain values.

#include <algorithm>
#include <cstddef>

namespace moeflux {

inline constexpr std::size_t kDeltaStrip = 16;  // channels; of the last one there may be fewer

// Of the strip in which channel `value` is: its first channel, and how many it has.
constexpr std::size_t delta_strip_begin(std::size_t value) { return value / kDeltaStrip * kDeltaStrip; }
constexpr std::size_t delta_strip_size(std::size_t value_dim, std::size_t value) {
  return std::min(kDeltaStrip, value_dim - delta_strip_begin(value));
}

struct DeltaStateShape {
  std::size_t key_dim = 0, value_dim = 0;

  constexpr std::size_t size() const { return key_dim * value_dim; }
  // Where S[key][value] is.
  constexpr std::size_t place(std::size_t key, std::size_t value) const {
    const std::size_t begin = delta_strip_begin(value);
    return begin * key_dim + key * delta_strip_size(value_dim, value) + (value - begin);
  }
  friend constexpr bool operator==(const DeltaStateShape&, const DeltaStateShape&) = default;
};

}  // namespace moeflux
