#pragma once
// Products of integers and their sums, by AVX2: pairs of products of bytes in 16 bits, then pairs of pairs in 32.
// dots_avx512vnni.h and int8_pairs.inl say what the names mean.

#include "kernels/lanes_avx2.h"

namespace moeflux {
namespace {

MF_LANES Ints dot2(Ints sum, Ints a, Ints b) {
  return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(a.low, b.low)),
          _mm256_add_epi32(sum.high, _mm256_madd_epi16(a.high, b.high))};
}

MF_LANES Ints add_pairs(Ints sum, Ints codes, Ints x) {
  const __m256i one = _mm256_set1_epi16(1);
  return dot2(sum, {_mm256_maddubs_epi16(codes.low, x.low), _mm256_maddubs_epi16(codes.high, x.high)},
              {one, one});
}

}  // namespace
}  // namespace moeflux
