#pragma once
// Affine codes of a matrix in tile16 as bytes, and the scales of a group, sixteen rows at a time.

#include <cstddef>
#include <cstdint>

#include "kernels/vector/lanes.h"
#include "quant/tile16.h"

namespace moeflux::vector {
namespace {

constexpr std::uint32_t kBlockRows = tile16::kBlockRows;
constexpr std::uint32_t kUnitBytes = tile16::kUnitBytes;

// Stores the first `rows` outputs of a block. A masked store takes as long as six full ones on a Zen 4.
template <class Lanes>
MF_INLINE void store_block(float* y, Lanes a, std::uint32_t rows) {
  if (rows == kBlockRows) {
    store(y, a);
  } else {
    store_first(y, a, rows);
  }
}

// The two BF16 of a lane.
template <class Ints>
MF_INLINE auto lower_bf16(Ints unit) {
  return as_float(shift_left<16>(unit));
}
template <class Isa>
MF_INLINE LanesOf<Isa> upper_bf16(IntsOf<Isa> unit) {
  return as_float(unit & Isa::broadcast(static_cast<std::int32_t>(0xffff0000)));
}

// The scales and biases of a group, of 16 rows.
template <class Isa>
struct GroupScales {
  LanesOf<Isa> scale, bias;
};
template <class Isa>
MF_INLINE GroupScales<Isa> group_scales(const std::byte* at, bool are_f32) {
  const auto first = Isa::load_unit(at);
  if (are_f32) return {as_float(first), as_float(Isa::load_unit(at + kUnitBytes))};
  return {upper_bf16<Isa>(first), lower_bf16(first)};
}

// Codes of 3 = 2 + 1, 5 = 4 + 1 and 6 = 4 + 2 bits lie in two planes, the others in one.
template <unsigned Bits>
struct Planes {
  static constexpr unsigned kLow = Bits == 3 ? 2 : Bits == 5 || Bits == 6 ? 4 : Bits;
  static constexpr unsigned kHigh = Bits - kLow;
};
constexpr unsigned kStep = 32;  // columns: p units of a plane of p bits

template <class Isa>
MF_INLINE IntsOf<Isa> broadcast_four(const void* bytes) {
  std::int32_t four;
  __builtin_memcpy(&four, bytes, sizeof four);
  return Isa::broadcast(four);
}

template <class Isa, std::uint32_t Byte>
MF_INLINE IntsOf<Isa> every_byte() {
  return Isa::broadcast(static_cast<std::int32_t>(Byte * 0x01010101u));
}

// Moves the bits of every lane from position From to position To.
template <unsigned From, unsigned To, class Ints>
MF_INLINE Ints moved(Ints unit) {
  if constexpr (From < To) {
    return shift_left<To - From>(unit);
  } else {
    return shift_right<From - To>(unit);
  }
}

// Columns 4 Index to 4 Index + 3 of a step, as bytes 0 to 3 of a lane. low, high: the units of both planes of
// the step.
template <class Isa, unsigned Bits, unsigned Index>
MF_INLINE IntsOf<Isa> quad_codes(const std::byte* low, const std::byte* high) {
  constexpr unsigned kLow = Planes<Bits>::kLow, kHigh = Planes<Bits>::kHigh;
  constexpr unsigned kLowQuads = 8 / kLow;  // per unit
  constexpr unsigned kLowAt = Index % kLowQuads * kLow, kHighAt = Index * kHigh % 8;
  const auto low_unit = Isa::load_unit(low + Index / kLowQuads * kUnitBytes);
  if constexpr (Bits == 8) {
    return low_unit;
  } else if constexpr (kHigh == 0) {
    return shift_right<kLowAt>(low_unit) & every_byte<Isa, (1 << kLow) - 1>();
  } else {
    // The high bits move above the low ones.
    const auto high_unit = Isa::load_unit(high + Index * kHigh / 8 * kUnitBytes);
    const auto low_bits = shift_right<kLowAt>(low_unit) & every_byte<Isa, (1 << kLow) - 1>();
    const auto high_bits = moved<kHighAt, kLow>(high_unit) & every_byte<Isa, ((1 << kHigh) - 1) << kLow>();
    return low_bits | high_bits;
  }
}

}  // namespace
}  // namespace moeflux::vector
