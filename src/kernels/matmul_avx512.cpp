// The matrix products by AVX-512: a vector is a column of a block.

#include "kernels/isa_tables.h"
#include "kernels/lanes_avx512.h"

namespace moeflux {
namespace {

constexpr unsigned kMatmulRows = 4;
constexpr unsigned kMatmulSums = 16;

// Four bits are looked up in a table of 16 floats, which ignores the bits above; two bits in one of two.
template <unsigned At, unsigned Bits>
MF_LANES Lanes field(Ints unit) {
  if constexpr (At + Bits == 32) {
    return to_float(shift_right<At>(unit));
  } else if constexpr (Bits == 4) {
    const __m512 numbers = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return {_mm512_permutexvar_ps(shift_right<At>(unit).v, numbers)};
  } else if constexpr (Bits == 2 && At % 4 == 0) {
    const __m512 numbers = _mm512_set_ps(3, 2, 1, 0, 3, 2, 1, 0, 3, 2, 1, 0, 3, 2, 1, 0);
    return {_mm512_permutexvar_ps(shift_right<At>(unit).v, numbers)};
  } else if constexpr (Bits == 2) {
    const __m512 numbers = _mm512_set_ps(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return {_mm512_permutexvar_ps(shift_right<At - 2>(unit).v, numbers)};
  } else {
    return to_float(shift_right<At>(unit) & broadcast((1 << Bits) - 1));
  }
}

MF_LANES bool any_bit(Ints a) { return _mm512_test_epi32_mask(a.v, a.v) != 0; }

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/matmul_vector.inl"

namespace moeflux {

constinit const MatmulKernels kAvx512Matmul = kMatmul;

}  // namespace moeflux
