// Integer products by AVX-512 without VNNI: pairs of products in 16 bits, then pairs of pairs in 32.

#include "kernels/isa_tables.h"
#include "kernels/lanes_avx512.h"
#include "kernels/law.h"

namespace moeflux {
namespace {

constexpr unsigned kInt8Blocks = 2, kInt8Rows = 8;

MF_LANES Ints add_pairs(Ints sum, Ints codes, Ints x) {
  const __m512i pairs = _mm512_maddubs_epi16(codes.v, x.v);
  return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
}

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/lanes_math.inl"

#include "kernels/int8_pairs.inl"

#include "kernels/int8_vector.inl"

namespace moeflux {

constinit const Int8Kernels kAvx512Int8 = kInt8;

}  // namespace moeflux
