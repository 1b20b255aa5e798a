#pragma once
// Products of integers and their sums, by AVX-512 VNNI: one instruction, which does not saturate.
//
//   dot4<Bits>(sum, codes, x)   sum + the products of the four bytes of a lane: codes are unsigned and below 2^Bits, x is
//                               signed and above -128; exact
//   dot2(sum, a, b)             sum + the products of the two words of a lane, signed; exact where the sum fits
//
// Every dots_*.h defines dot2, and dot4 or what int8_pairs.inl makes it of.

#include "kernels/lanes_avx512.h"

namespace moeflux {
namespace {

template <unsigned Bits>
MF_LANES Ints dot4(Ints sum, Ints codes, Ints x) {
  return {_mm512_dpbusd_epi32(sum.v, codes.v, x.v)};
}

MF_LANES Ints dot2(Ints sum, Ints a, Ints b) { return {_mm512_dpwssd_epi32(sum.v, a.v, b.v)}; }

}  // namespace
}  // namespace moeflux
