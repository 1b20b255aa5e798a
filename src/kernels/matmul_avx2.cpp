// The matrix products by AVX2 and FMA.

#include "kernels/isa_tables.h"
#include "kernels/lanes_avx2.h"

namespace moeflux {
namespace {

constexpr unsigned kMatmulRows = 4;
constexpr unsigned kMatmulSums = 4;

// Byte `Index` of every lane.
template <unsigned Index>
MF_LANES Ints byte_of(Ints unit) {
  if constexpr (Index == 0) {
    return unit & broadcast(std::int32_t{255});
  } else if constexpr (Index == 3) {
    return shift_right<24>(unit);
  } else {
    const __m256i from = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(0x80808000 + Index)),
                                          _mm256_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12));
    return {_mm256_shuffle_epi8(unit.low, from), _mm256_shuffle_epi8(unit.high, from)};
  }
}

// The fields at one place of every byte are cut out together.
template <unsigned At, unsigned Bits>
MF_LANES Lanes field(Ints unit) {
  if constexpr (Bits == 8) {
    return to_float(byte_of<At / 8>(unit));
  } else {
    const Ints bytes = shift_right<At % 8>(unit) & broadcast(((1 << Bits) - 1) * 0x01010101);
    return to_float(byte_of<At / 8>(bytes));
  }
}

MF_LANES bool any_bit(Ints a) {
  const __m256i both = _mm256_or_si256(a.low, a.high);
  return _mm256_testz_si256(both, both) == 0;
}

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/matmul_vector.inl"

namespace moeflux {

constinit const MatmulKernels kAvx2Matmul = kMatmul;

}  // namespace moeflux
