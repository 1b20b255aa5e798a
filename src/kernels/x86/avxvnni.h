#pragma once
// AVX-VNNI: AVX2 with integer dot products that take one instruction each and do not saturate.

#include "kernels/x86/avx2.h"

namespace moeflux::vector {
namespace {

struct AvxVnni : Avx2 {
  template <unsigned Bits>
  MF_INLINE Ints dot4(Ints sum, Ints codes, Ints x) {
    return {_mm256_dpbusd_avx_epi32(sum.low, codes.low, x.low),
            _mm256_dpbusd_avx_epi32(sum.high, codes.high, x.high)};
  }
  MF_INLINE Ints dot2(Ints sum, Ints a, Ints b) {
    return {_mm256_dpwssd_avx_epi32(sum.low, a.low, b.low),
            _mm256_dpwssd_avx_epi32(sum.high, a.high, b.high)};
  }
};

}  // namespace
}  // namespace moeflux::vector
