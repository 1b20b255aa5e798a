#pragma once
// AVX-512 VNNI: AVX-512 whose integer products are one instruction each and do not saturate.

#include "kernels/x86/avx512.h"

namespace moeflux::vector {
namespace {

struct Avx512Vnni : Avx512 {
  template <unsigned Bits>
  MF_INLINE Ints dot4(Ints sum, Ints codes, Ints x) {
    return {_mm512_dpbusd_epi32(sum.v, codes.v, x.v)};
  }
  MF_INLINE Ints dot2(Ints sum, Ints a, Ints b) { return {_mm512_dpwssd_epi32(sum.v, a.v, b.v)}; }
};

}  // namespace
}  // namespace moeflux::vector
