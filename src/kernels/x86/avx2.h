#pragma once
// AVX2 and FMA: sixteen lanes are two registers of eight. kernels/vector/lanes.h documents the names.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/vector/int8_pairs.h"
#include "kernels/vector/lanes.h"

namespace moeflux::vector {
namespace {
namespace avx2 {

struct Lanes {
  __m256 low, high;
};
struct Ints {
  __m256i low, high;
};
struct Mask {
  __m256 low, high;  // all bits of a lane, or none
};

MF_INLINE __m256i first_eight(std::ptrdiff_t count) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index);
}

MF_INLINE void store(float* to, Lanes a) {
  _mm256_storeu_ps(to, a.low);
  _mm256_storeu_ps(to + 8, a.high);
}
MF_INLINE void store_nontemporal(float* to, Lanes a) {
  _mm256_stream_ps(to, a.low);
  _mm256_stream_ps(to + 8, a.high);
}
MF_INLINE void store_first(float* to, Lanes a, std::size_t count) {
  const auto signed_count = static_cast<std::ptrdiff_t>(count);
  _mm256_maskstore_ps(to, first_eight(signed_count), a.low);
  _mm256_maskstore_ps(to + 8, first_eight(signed_count - 8), a.high);
}

MF_INLINE void store_unit(std::byte* to, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), a.high);
}

MF_INLINE Lanes operator+(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
MF_INLINE Lanes operator-(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
MF_INLINE Lanes operator*(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
MF_INLINE Lanes operator/(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
MF_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
MF_INLINE Lanes negated(Lanes a) {
  const __m256 sign = _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MIN));
  return {_mm256_xor_ps(a.low, sign), _mm256_xor_ps(a.high, sign)};
}
MF_INLINE Lanes magnitude(Lanes a) {
  const __m256 rest = _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MAX));
  return {_mm256_and_ps(a.low, rest), _mm256_and_ps(a.high, rest)};
}

MF_INLINE Mask greater(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ)};
}
MF_INLINE Mask less(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
MF_INLINE Mask not_a_number(Lanes a) {
  return {_mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q), _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q)};
}
MF_INLINE Mask equal(Ints a, Ints b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.low, b.low)),
          _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.high, b.high))};
}
MF_INLINE Lanes select(Mask where, Lanes yes, Lanes no) {
  return {_mm256_blendv_ps(no.low, yes.low, where.low), _mm256_blendv_ps(no.high, yes.high, where.high)};
}

MF_INLINE Lanes larger(Lanes a, Lanes b) { return select(greater(a, b), a, b); }

MF_INLINE Ints operator+(Ints a, Ints b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
MF_INLINE Ints operator-(Ints a, Ints b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
MF_INLINE Ints operator&(Ints a, Ints b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
MF_INLINE Ints operator|(Ints a, Ints b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
MF_INLINE Ints operator^(Ints a, Ints b) {
  return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
MF_INLINE Ints larger(Ints a, Ints b) {
  return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
}
template <unsigned Bits>
MF_INLINE Ints shift_left(Ints a) {
  return {_mm256_slli_epi32(a.low, Bits), _mm256_slli_epi32(a.high, Bits)};
}
template <unsigned Bits>
MF_INLINE Ints shift_right(Ints a) {
  return {_mm256_srli_epi32(a.low, Bits), _mm256_srli_epi32(a.high, Bits)};
}
template <unsigned Bits>
MF_INLINE Ints shift_right_signed(Ints a) {
  return {_mm256_srai_epi32(a.low, Bits), _mm256_srai_epi32(a.high, Bits)};
}
MF_INLINE Lanes to_float(Ints a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
MF_INLINE Ints to_int(Lanes a) { return {_mm256_cvttps_epi32(a.low), _mm256_cvttps_epi32(a.high)}; }
MF_INLINE Ints round_to_int(Lanes a) { return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)}; }
MF_INLINE void store_bytes(std::int8_t* to, Ints a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}
MF_INLINE void interleave_half(__m256i a, __m256i b, std::byte* to) {
  const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32), _mm256_permute2x128_si256(low, high, 0x31));
}
MF_INLINE void interleave(Ints a, Ints b, std::byte* to) {
  interleave_half(a.low, b.low, to);
  interleave_half(a.high, b.high, to + 64);
}
MF_INLINE void store_words(std::int16_t* to, Ints a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words);
}
MF_INLINE void store_halves(std::byte* to, Ints a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(a.low, a.high), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words);
}
MF_INLINE Lanes as_float(Ints a) { return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}; }
MF_INLINE Ints as_int(Lanes a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }

MF_INLINE void make_opaque(Ints& a) { asm volatile("" : "+x"(a.low), "+x"(a.high)); }

MF_INLINE float fold_add(Lanes a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

MF_INLINE float fold_largest(Lanes a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

MF_INLINE std::int32_t fold_largest(Ints a) {
  const __m256i eight = _mm256_max_epi32(a.low, a.high);
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 1)));
}

MF_INLINE Lanes swap_neighbors(Lanes a) {
  return {_mm256_permute_ps(a.low, 0xb1), _mm256_permute_ps(a.high, 0xb1)};
}
MF_INLINE Lanes eight_twice(__m256 a) {
  return {_mm256_permutevar8x32_ps(a, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
          _mm256_permutevar8x32_ps(a, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
}
MF_INLINE Lanes first_half_twice(Lanes a) { return eight_twice(a.low); }
MF_INLINE Lanes second_half_twice(Lanes a) { return eight_twice(a.high); }
MF_INLINE Lanes negated_even(Lanes a) {
  const __m256 signs = _mm256_castsi256_ps(_mm256_set1_epi64x(std::int64_t{0x80000000}));
  return {_mm256_xor_ps(a.low, signs), _mm256_xor_ps(a.high, signs)};
}

// Transposes eight rows of eight numbers.
MF_INLINE void transpose_eight(__m256i (&a)[8]) {
  __m256i b[8];
#pragma GCC unroll 4
  for (unsigned i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
  }
  __m256i c[8];  // c[4 i + k]: numbers k and k + 4 of rows 4 i to 4 i + 3
#pragma GCC unroll 2
  for (unsigned i = 0; i < 8; i += 4) {
    c[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
    c[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
    c[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
    c[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
#pragma GCC unroll 4
  for (unsigned k = 0; k < 4; ++k) {
    a[k] = _mm256_permute2x128_si256(c[k], c[4 + k], 0x20);
    a[k + 4] = _mm256_permute2x128_si256(c[k], c[4 + k], 0x31);
  }
}
MF_INLINE void transpose(Ints (&a)[16]) {
  __m256i low[2][8], high[2][8];  // of rows 0 to 7, and 8 to 15
#pragma GCC unroll 8
  for (unsigned i = 0; i < 8; ++i) {
    low[0][i] = a[i].low;
    high[0][i] = a[i].high;
    low[1][i] = a[8 + i].low;
    high[1][i] = a[8 + i].high;
  }
#pragma GCC unroll 2
  for (unsigned half = 0; half < 2; ++half) {
    transpose_eight(low[half]);
    transpose_eight(high[half]);
  }
#pragma GCC unroll 8
  for (unsigned i = 0; i < 8; ++i) {
    a[i] = {low[0][i], low[1][i]};
    a[8 + i] = {high[0][i], high[1][i]};
  }
}

MF_INLINE void load_columns(const float* rows, Lanes (&columns)[4]) {
  const __m256i index = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
#pragma GCC unroll 4
  for (int column = 0; column < 4; ++column)
    columns[column] = {_mm256_i32gather_ps(rows + column, index, 4),
                       _mm256_i32gather_ps(rows + 32 + column, index, 4)};
}

MF_INLINE void fold_add_tile(const Lanes (&a)[1][4], float scale, float* to, std::size_t stride) {
  const __m256 c0 = _mm256_add_ps(a[0][0].low, a[0][0].high), c1 = _mm256_add_ps(a[0][1].low, a[0][1].high);
  const __m256 c2 = _mm256_add_ps(a[0][2].low, a[0][2].high), c3 = _mm256_add_ps(a[0][3].low, a[0][3].high);
  const __m256 c01 =
      _mm256_add_ps(_mm256_permute2f128_ps(c0, c1, 0x20), _mm256_permute2f128_ps(c0, c1, 0x31));
  const __m256 c23 =
      _mm256_add_ps(_mm256_permute2f128_ps(c2, c3, 0x20), _mm256_permute2f128_ps(c2, c3, 0x31));
  // Two lanes each of columns 0 and 2, and of 1 and 3.
  const __m256 twos = _mm256_add_ps(_mm256_shuffle_ps(c01, c23, 0x44), _mm256_shuffle_ps(c01, c23, 0xee));
  const __m128 c02 = _mm256_castps256_ps128(twos), c13 = _mm256_extractf128_ps(twos, 1);
  const __m128 sums = _mm_mul_ps(_mm_add_ps(_mm_shuffle_ps(c02, c13, 0x88), _mm_shuffle_ps(c02, c13, 0xdd)),
                                 _mm_set1_ps(scale));
  _mm_store_ss(to, sums);
  _mm_store_ss(to + 2 * stride, _mm_shuffle_ps(sums, sums, 1));
  _mm_store_ss(to + stride, _mm_movehl_ps(sums, sums));
  _mm_store_ss(to + 3 * stride, _mm_shuffle_ps(sums, sums, 3));
}

MF_INLINE Ints all(std::int32_t a) { return {_mm256_set1_epi32(a), _mm256_set1_epi32(a)}; }

// Byte `Index` of every lane.
template <unsigned Index>
MF_INLINE Ints byte_of(Ints unit) {
  if constexpr (Index == 0) {
    return unit & all(255);
  } else if constexpr (Index == 3) {
    return shift_right<24>(unit);
  } else {
    const __m256i from = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(0x80808000 + Index)),
                                          _mm256_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12));
    return {_mm256_shuffle_epi8(unit.low, from), _mm256_shuffle_epi8(unit.high, from)};
  }
}

// Cuts out the fields of all bytes at once.
template <unsigned At, unsigned Bits>
MF_INLINE Lanes field(Ints unit) {
  if constexpr (Bits == 8) {
    return to_float(byte_of<At / 8>(unit));
  } else {
    const Ints bytes = shift_right<At % 8>(unit) & all(((1 << Bits) - 1) * 0x01010101);
    return to_float(byte_of<At / 8>(bytes));
  }
}

MF_INLINE bool any_bit(Ints a) {
  const __m256i both = _mm256_or_si256(a.low, a.high);
  return _mm256_testz_si256(both, both) == 0;
}

}  // namespace avx2

struct Avx2 {
  using Lanes = avx2::Lanes;
  using Ints = avx2::Ints;

  static constexpr unsigned kFoldRows = 1, kFoldCols = 4;
  static constexpr unsigned kStripsAtOnce = 1;
  static constexpr unsigned kMatmulRows = 4, kMatmulSums = 4;
  static constexpr unsigned kInt8Blocks = 1, kInt8Rows = 4;
  static constexpr unsigned kAttentionUnits = 1;

  MF_INLINE Lanes broadcast(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
  MF_INLINE Ints broadcast(std::int32_t a) { return avx2::all(a); }

  MF_INLINE Lanes load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  MF_INLINE Lanes load_first(const float* from, std::size_t count) {
    const auto signed_count = static_cast<std::ptrdiff_t>(count);
    return {_mm256_maskload_ps(from, avx2::first_eight(signed_count)),
            _mm256_maskload_ps(from + 8, avx2::first_eight(signed_count - 8))};
  }
  MF_INLINE Ints load_unit(const std::byte* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32))};
  }
  MF_INLINE Ints load_bytes(const std::int8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
  }
  MF_INLINE Ints load_words(const std::byte* from) {
    const auto* const bytes = reinterpret_cast<const __m128i*>(from);
    return {_mm256_cvtepi8_epi16(_mm_loadu_si128(bytes)), _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes + 1))};
  }
  MF_INLINE Ints load_halves(const std::byte* from) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(words)),
            _mm256_cvtepu16_epi32(_mm256_extracti128_si256(words, 1))};
  }

  MF_INLINE void store_fence() { _mm_sfence(); }
  MF_INLINE void prefetch_l2(const void* line) { __builtin_prefetch(line, 0, 2); }
  MF_INLINE void prefetch_l2_in_place(const void* line) {
    asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char*>(line)) : "memory");
  }

  MF_INLINE float square_root(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

  MF_INLINE Ints dot2(Ints sum, Ints a, Ints b) {
    return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(a.low, b.low)),
            _mm256_add_epi32(sum.high, _mm256_madd_epi16(a.high, b.high))};
  }
  MF_INLINE Ints add_pairs(Ints sum, Ints codes, Ints x) {
    const __m256i one = _mm256_set1_epi16(1);
    return dot2(sum, {_mm256_maddubs_epi16(codes.low, x.low), _mm256_maddubs_epi16(codes.high, x.high)},
                {one, one});
  }
  template <unsigned Bits>
  MF_INLINE Ints dot4(Ints sum, Ints codes, Ints x) {
    return dot4_by_pairs<Avx2, Bits>(sum, codes, x);
  }
};

}  // namespace
}  // namespace moeflux::vector
