#pragma once
// Elementary functions and reductions of the law of arithmetic (docs/arithmetic.md), one number at a time.
//
// This is the specification: plain operations, each rounded once, in the order that is written. Every table
// of kernels gives these bits. Only + - * / sqrt and fma of float32 are used, so there is one result on every
// machine; nothing here calls the C library but fma, sqrt and rint, which IEEE 754 defines.
// kernels/lanes_math.inl is the same, 16 numbers at a time. Pure functions: any thread.
//
// Each function says its largest error in units in the last place of the result, found by comparing it for
// every float32 with double precision; law_test.cpp asserts it for some of them.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace moeflux::law {

// A reduction over a row has 16 virtual lanes: element i belongs to lane i mod 16, and a row that is no
// multiple of 16 long counts as filled up with zeros, which are added like the others.
inline constexpr unsigned kLanes = 16;

// Lanes l and l + 8 are added for l < 8, then l and l + 4, then 2, then 1. Destroys `lanes`.
inline float fold_add(float (&lanes)[kLanes]) {
  for (unsigned half = kLanes / 2; half != 0; half /= 2)
    for (unsigned lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
  return lanes[0];
}

// The upper half of a float, rounded to nearest even; what is not a number stays so.
inline std::uint16_t bf16_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return static_cast<std::uint16_t>((bits | 0x00400000u) >> 16);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// How a group of numbers becomes bytes or words: code = x * inverse, rounded to the nearest integer, ties to even, and back
// scale * code. An inverse of 0: all codes are zero.
struct CodeScale {
  float scale, inverse;
};
inline constexpr float kByteSteps = 127, kWordSteps = 32767;  // the largest codes
// A group whose largest number is smaller counts as zeros: steps / x would overflow.
inline constexpr float kLeastCoded = 0x1p-100f;

// `largest`: of |x| in the group. Where a number of it is not finite the scale is NaN.
[[gnu::always_inline]] inline CodeScale code_scale_of(float largest, bool are_finite, float steps) {
  if (!are_finite) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
  if (largest < kLeastCoded) return {0.0f, 0.0f};
  return {largest / steps, steps / largest};
}
inline CodeScale code_scale(const float* x, std::uint32_t n, float steps) {
  bool are_finite = true;
  float largest = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    are_finite = are_finite && std::isfinite(x[i]);
    largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
  }
  return code_scale_of(largest, are_finite, steps);
}

// A group of numbers as bytes; returns their scale.
inline float to_bytes(const float* x, std::uint32_t n, std::int8_t* codes) {
  const auto [scale, inverse] = code_scale(x, n, kByteSteps);
  for (std::uint32_t i = 0; i < n; ++i)
    codes[i] = inverse != 0 ? static_cast<std::int8_t>(std::rint(x[i] * inverse)) : std::int8_t{0};
  return scale;
}

// The sum of a[i] b[i] over the virtual lanes, by fma from zero.
inline float dot(const float* a, const float* b, std::uint32_t n) {
  float lanes[kLanes] = {};
  for (std::uint64_t i = 0; i < n; i += kLanes)
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const bool exists = i + lane < n;
      lanes[lane] = std::fma(exists ? a[i + lane] : 0.0f, exists ? b[i + lane] : 0.0f, lanes[lane]);
    }
  return fold_add(lanes);
}

// The larger; `b` when they are equal or one of them is not a number.
inline float larger(float a, float b) { return a > b ? a : b; }

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62ep-1f;     // 11 bits of ln 2: its product with an exponent is exact
inline constexpr float kLn2Low = 0x1.0bfbe8p-15f;  // ln 2 - kLn2High
inline constexpr float kRoundToInteger =
    0x1.8p+23f;                               // x + this - this is x rounded to an integer, ties to even
inline constexpr float kExpLowest = -104.0f;  // below: exp is 0
inline constexpr float kExpHighest = 89.0f;   // above: exp is infinite

// 2^n for -150 <= n <= 129, as the product of two powers, so that results that are subnormal come out right.
struct PowerOfTwo {
  float first, second;
};
inline PowerOfTwo power_of_two(std::int32_t n) {
  const std::int32_t half = n >> 1;
  return {std::bit_cast<float>((half + 127) << 23), std::bit_cast<float>((n - half + 127) << 23)};
}

// e^x: x = n ln 2 + r with |r| <= ln 2 / 2, and the series of e^r to r^7 / 7!.
inline constexpr double kExpUlp = 0.94;
inline float exp(float x) {
  if (x != x) return x;
  const float clamped = x < kExpLowest ? kExpLowest : x > kExpHighest ? kExpHighest : x;
  const float n = std::fma(clamped, kLog2E, kRoundToInteger) - kRoundToInteger;
  float r = std::fma(n, -kLn2High, clamped);
  r = std::fma(n, -kLn2Low, r);
  float sum = 1.0f / 5040;
  sum = std::fma(sum, r, 1.0f / 720);
  sum = std::fma(sum, r, 1.0f / 120);
  sum = std::fma(sum, r, 1.0f / 24);
  sum = std::fma(sum, r, 1.0f / 6);
  sum = std::fma(sum, r, 0.5f);
  sum = std::fma(sum, r, 1.0f);
  sum = std::fma(sum, r, 1.0f);
  const PowerOfTwo power = power_of_two(static_cast<std::int32_t>(n));
  return sum * power.first * power.second;
}

// p = exp(p - max) for a block's scores; zeros of both signs are equal, so which of them is met first must not matter.
struct Softened {
  float max, sum;
};
inline Softened soften(float* p, std::uint32_t n) {
  float max = -std::numeric_limits<float>::infinity();
  for (std::uint32_t j = 0; j < n; ++j) max = larger(p[j], max);
  max = max + 0.0f;
  float lanes[kLanes] = {};
  for (std::uint32_t j = 0; j < n; ++j) {
    p[j] = exp(p[j] - max);
    lanes[j % kLanes] = lanes[j % kLanes] + p[j];
  }
  return {max, fold_add(lanes)};
}

// ln x for a positive normal x: x = 2^e m with sqrt(1/2) <= m < sqrt 2, and ln m = 2 atanh((m - 1) / (m +
// 1)).
inline constexpr double kLogUlp = 1.97;
inline constexpr std::int32_t kSqrtHalfBits = 0x3f3504f3;
inline float log(float x) {
  const std::int32_t bits = std::bit_cast<std::int32_t>(x);
  const std::int32_t exponent = (bits - kSqrtHalfBits) >> 23;
  const float m = std::bit_cast<float>(bits - (exponent << 23));
  const float e = static_cast<float>(exponent);
  const float f = m - 1.0f;
  const float s = f / (m + 1.0f);
  const float z = s * s;
  float series = 1.0f / 11;
  series = std::fma(series, z, 1.0f / 9);
  series = std::fma(series, z, 1.0f / 7);
  series = std::fma(series, z, 1.0f / 5);
  series = std::fma(series, z, 1.0f / 3);
  const float twice = s + s;
  const float log_m = std::fma(twice * z, series, twice);
  return std::fma(e, kLn2High, std::fma(e, kLn2Low, log_m));
}

// ln(1 + u) for 0 <= u <= 1: what rounding 1 + u lost is put back.
inline constexpr double kLog1pUlp = 2.47;
inline float log1p(float u) {
  const float w = 1.0f + u;
  const float lost = u - (w - 1.0f);
  return log(w) + lost / w;
}

// Where exp(-x) is infinite, below -88.72, these are 0 and -0; of -infinity, 0 and NaN.
inline constexpr double kSigmoidUlp = 2.49, kSiluUlp = 2.40;
inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
inline float silu(float x) { return x / (1.0f + exp(-x)); }

// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|).
inline constexpr double kSoftplusUlp = 3.34;
inline float softplus(float x) { return larger(x, 0.0f) + log1p(exp(-std::fabs(x))); }

}  // namespace moeflux::law
