#pragma once
// Where tile16 keeps the codes of an affine matrix: docs/formats/packed_model.md in code.
//
// For tile16.cpp and the scalar kernels, the two plain readings of the layout. Pure functions: any thread.

#include <array>
#include <cstddef>
#include <cstdint>

#include "quant/dtype.h"
#include "quant/encoding.h"
#include "quant/tile16.h"

namespace moeflux::tile16 {

inline constexpr std::uint64_t kLaneBytes = 4;

// Codes of odd widths are planes of bits, the low ones first: 3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2. In a plane
// of p bits a byte of a lane holds 8/p columns that are 4 apart, so byte b of unit u, bits [p*q, p*q + p),
// is column u * 32/p + 4*q + b.
struct Planes {
  std::array<std::uint32_t, 2> bits;
  std::size_t count;
};
constexpr Planes planes_of(std::uint32_t bits) {
  switch (bits) {
    case 3: return {{2, 1}, 2};
    case 5: return {{4, 1}, 2};
    case 6: return {{4, 2}, 2};
    default: return {{bits, 0}, 1};
  }
}

constexpr std::uint64_t plane_bytes(std::uint32_t plane_bits, std::uint64_t group) {
  return kBlockRows * group * plane_bits / 8;
}

// The code of column k of a group of a row. lane: the row's lane of the group's first unit.
inline std::uint32_t code_at(const std::byte* lane, const AffineFormat& format, std::uint64_t k) {
  const Planes planes = planes_of(format.bits);
  std::uint32_t code = 0, below = 0;
  for (std::size_t p = 0; p < planes.count; ++p) {
    const std::uint32_t bits = planes.bits[p];
    const std::uint64_t unit_cols = 32 / bits;
    const std::uint64_t within = k % unit_cols;
    const auto byte = std::to_integer<std::uint32_t>(lane[k / unit_cols * kUnitBytes + within % 4]);
    code |= (byte >> (bits * (within / 4)) & ((1u << bits) - 1)) << below;
    below += bits;
    lane += plane_bytes(bits, format.group);
  }
  return code;
}

// The scales that end a group. BF16: one unit of (bias, scale) pairs. F32: a unit of scales, one of biases.
constexpr std::uint64_t scales_bytes(const AffineFormat& format) {
  return format.scale_dtype == Dtype::bf16 ? kUnitBytes : 2 * kUnitBytes;
}
constexpr std::uint64_t codes_bytes(const AffineFormat& format) {
  return kBlockRows * format.group * format.bits / 8;
}
constexpr std::uint64_t group_bytes(const AffineFormat& format) {
  return codes_bytes(format) + scales_bytes(format);
}

// A row's scale and bias. lane: the row's lane of the group's first unit of scales.
struct ScaleAndBias {
  float scale, bias;
};
inline ScaleAndBias scale_and_bias(const std::byte* lane, const AffineFormat& format) {
  if (format.scale_dtype != Dtype::bf16) return {load<float>(lane), load<float>(lane + kUnitBytes)};
  return {float_from_bf16(load<std::uint16_t>(lane + 2)), float_from_bf16(load<std::uint16_t>(lane))};
}

// A group of so many columns of an fp8 matrix: their numbers, a unit of scales.
constexpr std::uint64_t fp8_group_bytes(std::uint64_t cols) {
  return (cols + 3) / 4 * kUnitBytes + kUnitBytes;
}

}  // namespace moeflux::tile16
