// Integer products by AVX2: pairs of products in 16 bits, then pairs of pairs in 32.

#include "kernels/isa_tables.h"
#include "kernels/lanes_avx2.h"
#include "kernels/law.h"

namespace moeflux {
namespace {

constexpr unsigned kInt8Blocks = 1, kInt8Rows = 4;

MF_LANES __m256i dot_half(__m256i sum, __m256i codes, __m256i x) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)));
}

MF_LANES Ints add_pairs(Ints sum, Ints codes, Ints x) {
  return {dot_half(sum.low, codes.low, x.low), dot_half(sum.high, codes.high, x.high)};
}

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/lanes_math.inl"

#include "kernels/int8_pairs.inl"

#include "kernels/int8_vector.inl"

namespace moeflux {

constinit const Int8Kernels kAvx2Int8 = kInt8;

}  // namespace moeflux
