#pragma once
// The arithmetic of sampling: probabilities as integers.
//
// A token's weight is its probability relative to the most probable token, times 2^42, rounded to an integer.
// Sums of integers are independent of their order: a sum over buckets, vector lanes or a sorted list is the
// same number, so no choice of the sampler depends on how it is computed. These functions use only + - * / of
// float64, in the order written (the build forbids contraction), and never the C library, so every compiler
// and instruction set gives the same result. docs/sampling.md is the specification.
//
// Pure functions, thread-safe.

#include <bit>
#include <cstddef>
#include <cstdint>

namespace moeflux {

inline constexpr unsigned kWeightBits = 42;
inline constexpr double kFullWeight = 0x1p42;  // of the most probable token

// The sum of this many weights does not overflow.
inline constexpr std::size_t kMaxSampledVocabulary = std::size_t{1} << 21;

namespace detail {
inline constexpr double kLog2E = 0x1.71547652b82fep+0;
inline constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits of ln 2: its product with an exponent is exact
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
inline constexpr double kRoundToInteger = 0x1.8p52;  // the low bits of x + this are x rounded to an integer
}  // namespace detail

// The exponent of a token's weight, at most 0: its distance from the best token. Monotone in `logit`, because
// float64 subtraction and multiplication by a positive number are.
inline double exponent_of(float logit, float highest, double inverse_temperature) {
  return (static_cast<double>(logit) - static_cast<double>(highest)) * inverse_temperature;
}

// e^x 2^42, rounded to the nearest integer; for x <= 0, including -infinity. 0 below about -29.8. x = n ln 2
// + r with |r| <= ln 2 / 2, and the series of e^r up to r^12 / 12!, whose remainder is below 2^-52.
// Branchless, so that compilers vectorize it.
inline std::uint64_t weight_of(double x) {
  const double bounded = x > -40.0 ? x : -40.0;
  const double shifted = bounded * detail::kLog2E + detail::kRoundToInteger;
  const double n = shifted - detail::kRoundToInteger;
  const double r = (bounded - n * detail::kLn2High) - n * detail::kLn2Low;
  double sum = 1.0 / 479001600;
  sum = sum * r + 1.0 / 39916800;
  sum = sum * r + 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  const std::uint64_t biased = std::bit_cast<std::uint64_t>(shifted) + (1023 + kWeightBits);
  const double scaled = sum * std::bit_cast<double>(biased << 52);  // n 2^52 overflows out of the top
  return std::bit_cast<std::uint64_t>(scaled + 0x1p52) - std::bit_cast<std::uint64_t>(0x1p52);
}

// ln x for a positive normal x = 2^e m with sqrt(1/2) <= m < sqrt 2, where ln m = 2 atanh((m - 1) / (m + 1)).
inline double natural_log(double x) {
  constexpr std::int64_t kSqrtHalfBits = 0x3fe6a09e667f3bcd;
  const std::int64_t bits = std::bit_cast<std::int64_t>(x);
  const std::int64_t exponent = (bits - kSqrtHalfBits) >> 52;
  const double m = std::bit_cast<double>(bits - (exponent << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = 1.0 / 23;
  for (int odd = 21; odd >= 1; odd -= 2) series = series * z + 1.0 / odd;
  const double e = static_cast<double>(exponent);
  return e * detail::kLn2High + (e * detail::kLn2Low + (s + s) * series);
}

}  // namespace moeflux
