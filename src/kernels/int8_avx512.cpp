// Integer products by AVX-512 without VNNI: pairs of products in 16 bits, then pairs of pairs in 32.

#include "kernels/isa_tables.h"
#include "kernels/lanes_avx512.h"

namespace moeflux {
namespace {

constexpr unsigned kInt8Rows = 8;

// Two products of 8-bit codes do not fit into 16 bits (2 * 255 * 127): their highest bit goes for itself.
template <unsigned Bits>
MF_LANES Ints dot4(Ints sum, Ints codes, Ints x) {
  if constexpr (Bits < 8) {
    const __m512i pairs = _mm512_maddubs_epi16(codes.v, x.v);
    return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
  } else {
    const Ints low = codes & broadcast(std::int32_t{0x7f7f7f7f});
    const Ints high = shift_right<7>(codes) & broadcast(std::int32_t{0x01010101});
    const Ints top = dot4<1>(broadcast(std::int32_t{0}), high, x);
    return dot4<7>(sum + shift_left<7>(top), low, x);
  }
}

MF_LANES void store_bytes(std::int8_t* to, Ints a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(a.v));
}

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/int8_vector.inl"

namespace moeflux {

constinit const Int8Kernels kAvx512Int8 = kInt8;

}  // namespace moeflux
