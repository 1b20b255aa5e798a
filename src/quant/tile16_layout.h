#pragma once
// The details of the layout tile16 (docs/formats/packed_model.md): where codes and scales are.
//
// For tile16.cpp and the scalar kernels, the two straightforward implementations of the layout. Pure
// functions: any thread.

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/arithmetic.h"
#include "quant/dtype.h"
#include "quant/encoding.h"
#include "quant/tile16.h"

namespace moeflux::tile16 {

// Codes of 3, 5 and 6 bits are split into planes of bits, low bits first: 3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2. In
// a plane of p bits, a byte of a lane holds 8/p columns that are 4 apart: bits [p*q, p*q + p) of byte b of
// unit u are column u * 32/p + 4*q + b.
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

// The code of column k of a group. `lane` is the row's lane in the first unit of the group.
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

// The scales at the end of a group. BF16: one unit of (bias, scale) pairs. F32: a unit of scales, then one of
// biases.
constexpr std::uint64_t scales_bytes(const AffineFormat& format) {
  return format.scale_dtype == Dtype::bf16 ? kUnitBytes : 2 * kUnitBytes;
}
constexpr std::uint64_t codes_bytes(const AffineFormat& format) {
  return plane_bytes(format.bits, format.group);
}
constexpr std::uint64_t group_bytes(const AffineFormat& format) {
  return codes_bytes(format) + scales_bytes(format);
}

// The scale and bias of a row. `lane` is the row's lane in the group's first unit of scales.
struct ScaleAndBias {
  float scale, bias;
};
inline ScaleAndBias scale_and_bias(const std::byte* lane, const AffineFormat& format) {
  if (format.scale_dtype != Dtype::bf16) return {load<float>(lane), load<float>(lane + kUnitBytes)};
  return {float_from_bf16(load<std::uint16_t>(lane + 2)), float_from_bf16(load<std::uint16_t>(lane))};
}

// A group of `cols` columns of an fp8 matrix: the codes, then a unit of scales.
constexpr std::uint64_t fp8_group_bytes(std::uint64_t cols) {
  return divide_up(cols, kLaneBytes) * kUnitBytes + kUnitBytes;
}

}  // namespace moeflux::tile16
