#pragma once
// Philox4x32-10 (Salmon et al., SC 2011): a counter-based random number generator.
//
// The n-th number of a seed is a function of (seed, n), so a draw is independent of earlier draws, of other
// sessions and of the batch. Pure functions, thread-safe.

#include <array>
#include <cstdint>

namespace moeflux {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

inline PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// 64 random bits for the `index`-th generated token.
inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const PhiloxCounter out = philox4x32_10({low(index), low(index >> 32), 0, 0}, {low(seed), low(seed >> 32)});
  return (std::uint64_t{out[1]} << 32) | out[0];
}

// The upper 64 bits of bits * limit, a number below `limit`. Requires: limit < 2^63. Multiplies 32-bit halves
// because ISO C++ has no 128-bit integers.
inline std::uint64_t scaled_to(std::uint64_t bits, std::uint64_t limit) {
  constexpr std::uint64_t kLow = 0xffffffff;
  const std::uint64_t low = (bits & kLow) * (limit & kLow);
  const std::uint64_t middle = (bits >> 32) * (limit & kLow) + (low >> 32);
  const std::uint64_t other = (bits & kLow) * (limit >> 32) + (middle & kLow);
  return (bits >> 32) * (limit >> 32) + (middle >> 32) + (other >> 32);
}

}  // namespace moeflux
