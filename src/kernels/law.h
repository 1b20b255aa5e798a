#pragma once
// Elementary functions and reductions of the law of arithmetic (docs/arithmetic.md), one number at a time.
//
// This is the specification: plain operations in the written order, each rounded once. Every kernel table
// gives these bits. Only + - * / sqrt and fma of float32 are used, so the result is the same on every
// machine; the only calls to the C library are fma, sqrt and rint, which IEEE 754 defines.
// kernels/vector/lanes_math.h is the same for 16 numbers at a time. Pure functions, thread-safe.
//
// Each function states its largest error in units in the last place, found by comparing every float32 with
// double precision; law_test.cpp asserts it on a sample.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace moeflux::law {

// A reduction over a row has 16 virtual lanes: element i belongs to lane i mod 16. A row whose length is not
// a multiple of 16 is padded with zeros, which are added like the other numbers.
inline constexpr unsigned kLanes = 16;

// Adds lanes l and l + 8 for l < 8, then l and l + 4, l + 2 and l + 1. Destroys `lanes`.
inline float fold_add(float (&lanes)[kLanes]) {
  for (unsigned half = kLanes / 2; half != 0; half /= 2)
    for (unsigned lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
  return lanes[0];
}

// The upper half of a float, rounded to nearest even; NaN stays NaN.
inline std::uint16_t bf16_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return static_cast<std::uint16_t>((bits | 0x00400000u) >> 16);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Quantization of a group of numbers to bytes or words: code = x * inverse, rounded to the nearest integer,
// ties to even; back: scale * code. With an inverse of 0 all codes are zero.
struct CodeScale {
  float scale, inverse;
};
inline constexpr float kMaxByteCode = 127, kMaxWordCode = 32767;  // the largest codes
// A group whose largest magnitude is below this becomes zeros: max_code / x would overflow.
inline constexpr float kMinCoded = 0x1p-100f;

// `largest`: the largest |x| of the group. If a number of the group is not finite, the scale is NaN.
[[gnu::always_inline]] inline CodeScale code_scale_of(float largest, bool are_finite, float max_code) {
  if (!are_finite) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
  if (largest < kMinCoded) return {0.0f, 0.0f};
  return {largest / max_code, max_code / largest};
}
inline CodeScale code_scale(const float* x, std::uint32_t n, float max_code) {
  bool are_finite = true;
  float largest = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    are_finite = are_finite && std::isfinite(x[i]);
    largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
  }
  return code_scale_of(largest, are_finite, max_code);
}

// Quantizes a group to bytes; returns the scale.
inline float to_bytes(const float* x, std::uint32_t n, std::int8_t* codes) {
  const auto [scale, inverse] = code_scale(x, n, kMaxByteCode);
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

// The larger of two; b if they are equal or either is NaN.
inline float larger(float a, float b) { return a > b ? a : b; }

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0x1.62ep-1f;     // 11 bits of ln 2: its product with an exponent is exact
inline constexpr float kLn2Low = 0x1.0bfbe8p-15f;  // ln 2 - kLn2High
inline constexpr float kRoundToInteger =
    0x1.8p+23f;                               // x + this - this is x rounded to an integer, ties to even
inline constexpr float kExpLowest = -104.0f;  // below: exp is 0
inline constexpr float kExpHighest = 89.0f;   // above: exp is infinite

// 2^n for -150 <= n <= 129, as a product of two powers, so that subnormal results are right.
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

// p = exp(p - max) for a block's scores. max + 0 makes a zero positive, because the order of zeros must not
// matter.
struct SoftmaxPartial {
  float max, sum;
};
inline SoftmaxPartial softmax_block(float* p, std::uint32_t n) {
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

// ln(1 + u) for 0 <= u <= 1, corrected for the rounding of 1 + u.
inline constexpr double kLog1pUlp = 2.47;
inline float log1p(float u) {
  const float w = 1.0f + u;
  const float lost = u - (w - 1.0f);
  return log(w) + lost / w;
}

// Below -88.72, where exp(-x) is infinite, these give 0 and -0; for -infinity, 0 and NaN.
inline constexpr double kSigmoidUlp = 2.49, kSiluUlp = 2.40;
inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
inline float silu(float x) { return x / (1.0f + exp(-x)); }

// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|).
inline constexpr double kSoftplusUlp = 3.34;
inline float softplus(float x) { return larger(x, 0.0f) + log1p(exp(-std::fabs(x))); }

}  // namespace moeflux::law
