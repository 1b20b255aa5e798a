#pragma once
// dot4 for instruction sets whose byte products are added in pairs of 16 bits, which saturate.
//
//   Isa::add_pairs(sum, codes, x)   sum + the products of the four bytes of a lane; pairs fit into 16 bits

#include <cstdint>

#include "kernels/vector/codes.h"
#include "kernels/vector/lanes.h"

namespace moeflux::vector {
namespace {

// Two products of 8-bit codes do not fit (2 * 255 * 127), so the highest bit is multiplied separately.
template <class Isa, unsigned Bits>
MF_INLINE IntsOf<Isa> dot4_by_pairs(IntsOf<Isa> sum, IntsOf<Isa> codes, IntsOf<Isa> x) {
  if constexpr (Bits < 8) {
    return Isa::add_pairs(sum, codes, x);
  } else {
    const auto high = shift_right<7>(codes) & every_byte<Isa, 1>();
    const auto top = Isa::add_pairs(Isa::broadcast(std::int32_t{0}), high, x);
    return Isa::add_pairs(sum + shift_left<7>(top), codes & every_byte<Isa, 0x7f>(), x);
  }
}

}  // namespace
}  // namespace moeflux::vector
