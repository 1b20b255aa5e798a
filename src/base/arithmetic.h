#pragma once
// Integer arithmetic that cannot wrap around. Pure functions: any thread.
//
// Sizes that come from a file are multiplied and added here, never with bare operators: a hostile 64-bit
// value must end as "too large", not as a small number that passes the next comparison.

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>

namespace moeflux {

// a * b and a + b, or nullopt if the result does not fit 64 bits.
inline std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}
inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// The product of the dimensions of a tensor, that is, its number of elements. 1 for the empty shape of a
// scalar.
inline std::optional<std::uint64_t> checked_product(std::span<const std::uint64_t> factors) {
  std::uint64_t product = 1;
  for (const std::uint64_t factor : factors) {
    const auto next = checked_multiply(product, factor);
    if (!next) return std::nullopt;
    product = *next;
  }
  return product;
}

// ceil(value / by). Requires: `by` is not 0.
template <std::unsigned_integral T>
constexpr T divide_up(T value, T by) {
  return value / by + (value % by != 0 ? 1 : 0);
}

}  // namespace moeflux
