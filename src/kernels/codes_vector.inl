// The codes of an affine matrix in tile16, as bytes, and its scales, sixteen rows at a time. Included after lanes_*.h by the families
// of products and that of attention over bytes.

namespace moeflux {
namespace {

constexpr std::uint32_t kBlockRows = 16;
constexpr std::uint32_t kUnitBytes = 64;

// A block's outputs, of which so many exist. A masked store takes as long as six whole ones on a Zen 4.
MF_LANES void store_block(float* y, Lanes a, std::uint32_t rows) {
  if (rows == kBlockRows) {
    store(y, a);
  } else {
    store_first(y, a, rows);
  }
}

// The two BF16 of a lane.
MF_LANES Lanes lower_bf16(Ints unit) { return as_float(shift_left<16>(unit)); }
MF_LANES Lanes upper_bf16(Ints unit) {
  return as_float(unit & broadcast(static_cast<std::int32_t>(0xffff0000)));
}

// What a group ends with, of 16 rows.
struct GroupScales {
  Lanes scale, bias;
};
MF_LANES GroupScales group_scales(const std::byte* at, bool are_f32) {
  const Ints first = load_unit(at);
  if (are_f32) return {as_float(first), as_float(load_unit(at + kUnitBytes))};
  return {upper_bf16(first), lower_bf16(first)};
}

// 3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2 bits in two planes; the others have one.
template <unsigned Bits>
struct Planes {
  static constexpr unsigned kLow = Bits == 3 ? 2 : Bits == 5 || Bits == 6 ? 4 : Bits;
  static constexpr unsigned kHigh = Bits - kLow;
};
constexpr unsigned kStep = 32;  // columns that are whole units of any plane: p units of a plane of p bits

MF_LANES Ints broadcast_four(const void* bytes) {
  std::int32_t four;
  __builtin_memcpy(&four, bytes, sizeof four);
  return broadcast(four);
}

template <std::uint32_t Byte>
MF_LANES Ints every_byte() {
  return broadcast(static_cast<std::int32_t>(Byte * 0x01010101u));
}

// Bits [From, ...) of every lane at [To, ...).
template <unsigned From, unsigned To>
MF_LANES Ints moved(Ints unit) {
  if constexpr (From < To) {
    return shift_left<To - From>(unit);
  } else {
    return shift_right<From - To>(unit);
  }
}

// Columns 4 Index to 4 Index + 3 of a step: bytes 0 to 3 of a lane. low, high: where the planes' units of the step are.
template <unsigned Bits, unsigned Index>
MF_LANES Ints quad_codes(const std::byte* low, const std::byte* high) {
  constexpr unsigned kLow = Planes<Bits>::kLow, kHigh = Planes<Bits>::kHigh;
  constexpr unsigned kLowQuads = 8 / kLow;  // of a unit
  constexpr unsigned kLowAt = Index % kLowQuads * kLow, kHighAt = Index * kHigh % 8;
  const Ints low_unit = load_unit(low + Index / kLowQuads * kUnitBytes);
  if constexpr (Bits == 8) {
    return low_unit;
  } else if constexpr (kHigh == 0) {
    return shift_right<kLowAt>(low_unit) & every_byte<(1 << kLow) - 1>();
  } else {
    // The high bits move to where the low ones end.
    const Ints high_unit = load_unit(high + Index * kHigh / 8 * kUnitBytes);
    const Ints low_bits = shift_right<kLowAt>(low_unit) & every_byte<(1 << kLow) - 1>();
    const Ints high_bits = moved<kHighAt, kLow>(high_unit) & every_byte<((1 << kHigh) - 1) << kLow>();
    return low_bits | high_bits;
  }
}

}  // namespace
}  // namespace moeflux
