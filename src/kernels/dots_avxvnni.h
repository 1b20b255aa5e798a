#pragma once
// Products of integers and their sums, by AVX-VNNI: those of AVX-512 VNNI in registers of 256 bits. dots_avx512vnni.h says
// what the names mean.

#include "kernels/lanes_avx2.h"

namespace moeflux {
namespace {

template <unsigned Bits>
MF_LANES Ints dot4(Ints sum, Ints codes, Ints x) {
  return {_mm256_dpbusd_avx_epi32(sum.low, codes.low, x.low),
          _mm256_dpbusd_avx_epi32(sum.high, codes.high, x.high)};
}

MF_LANES Ints dot2(Ints sum, Ints a, Ints b) {
  return {_mm256_dpwssd_avx_epi32(sum.low, a.low, b.low), _mm256_dpwssd_avx_epi32(sum.high, a.high, b.high)};
}

}  // namespace
}  // namespace moeflux
