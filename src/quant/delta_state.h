#pragma once
// The memory layout of the state S[key][value] of one gated DeltaNet head: strips of 16 value channels, and
// in each strip one row per key.
//
//   value_dim = 40:  [key_dim][16] for channels 0–15, [key_dim][16] for 16–31, [key_dim][8] for the rest
//
// Value channels are independent, and the update rule passes over the keys twice. A strip of 128 keys is 8
// KB: the first pass reads it from memory sequentially, the second from the L1 cache. Plain values: any
// thread.

#include <algorithm>
#include <cstddef>

namespace moeflux {

inline constexpr std::size_t kDeltaStrip = 16;  // channels per strip; the last strip may have fewer

// The first channel and the number of channels of the strip that contains channel `value`.
constexpr std::size_t delta_strip_begin(std::size_t value) { return value / kDeltaStrip * kDeltaStrip; }
constexpr std::size_t delta_strip_size(std::size_t value_dim, std::size_t value) {
  return std::min(kDeltaStrip, value_dim - delta_strip_begin(value));
}

struct DeltaStateShape {
  std::size_t key_dim = 0, value_dim = 0;

  constexpr std::size_t size() const { return key_dim * value_dim; }
  // The index of S[key][value].
  constexpr std::size_t place(std::size_t key, std::size_t value) const {
    const std::size_t begin = delta_strip_begin(value);
    return begin * key_dim + key * delta_strip_size(value_dim, value) + (value - begin);
  }
  friend constexpr bool operator==(const DeltaStateShape&, const DeltaStateShape&) = default;
};

}  // namespace moeflux
