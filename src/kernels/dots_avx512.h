#pragma once
// Products of integers and their sums, by AVX-512 without VNNI: pairs of products of bytes in 16 bits, then pairs of pairs
// in 32. dots_avx512vnni.h and int8_pairs.inl say what the names mean.

#include "kernels/lanes_avx512.h"

namespace moeflux {
namespace {

MF_LANES Ints dot2(Ints sum, Ints a, Ints b) {
  return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(a.v, b.v))};
}

MF_LANES Ints add_pairs(Ints sum, Ints codes, Ints x) {
  return dot2(sum, {_mm512_maddubs_epi16(codes.v, x.v)}, {_mm512_set1_epi16(1)});
}

}  // namespace
}  // namespace moeflux
