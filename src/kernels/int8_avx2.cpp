// Integer products by AVX2: pairs of products in 16 bits, then pairs of pairs in 32.

#include "kernels/isa_tables.h"
#include "kernels/lanes_avx2.h"

namespace moeflux {
namespace {

constexpr unsigned kInt8Rows = 4;

MF_LANES __m256i dot_half(__m256i sum, __m256i codes, __m256i x) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)));
}

// Two products of 8-bit codes do not fit into 16 bits (2 * 255 * 127): their highest bit goes for itself.
template <unsigned Bits>
MF_LANES Ints dot4(Ints sum, Ints codes, Ints x) {
  if constexpr (Bits < 8) {
    return {dot_half(sum.low, codes.low, x.low), dot_half(sum.high, codes.high, x.high)};
  } else {
    const Ints low = codes & broadcast(std::int32_t{0x7f7f7f7f});
    const Ints high = shift_right<7>(codes) & broadcast(std::int32_t{0x01010101});
    const Ints zero = broadcast(std::int32_t{0});
    const Ints top = dot4<1>(zero, high, x);
    return dot4<7>(sum + shift_left<7>(top), low, x);
  }
}

MF_LANES void store_bytes(std::int8_t* to, Ints a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/int8_vector.inl"

namespace moeflux {

constinit const Int8Kernels kAvx2Int8 = kInt8;

}  // namespace moeflux
