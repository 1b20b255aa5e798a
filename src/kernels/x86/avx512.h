#pragma once
// AVX-512 (F, BW, DQ, VL): sixteen lanes are one register. kernels/vector/lanes.h documents the names.

// GCC 12 warns of the deliberately undefined registers in its own header (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>

#include "kernels/vector/int8_pairs.h"
#include "kernels/vector/lanes.h"

namespace moeflux::vector {
namespace {
namespace avx512 {

struct Lanes {
  __m512 v;
};
struct Ints {
  __m512i v;
};
struct Mask {
  __mmask16 v;
};

MF_INLINE Mask first_lanes(std::size_t count) { return {static_cast<__mmask16>((1u << count) - 1)}; }

MF_INLINE void store(float* to, Lanes a) { _mm512_storeu_ps(to, a.v); }
MF_INLINE void store_nontemporal(float* to, Lanes a) { _mm512_stream_ps(to, a.v); }
MF_INLINE void store_first(float* to, Lanes a, std::size_t count) {
  _mm512_mask_storeu_ps(to, first_lanes(count).v, a.v);
}
MF_INLINE void store_unit(std::byte* to, Ints a) { _mm512_storeu_si512(to, a.v); }

MF_INLINE Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
MF_INLINE Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
MF_INLINE Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
MF_INLINE Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
MF_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
MF_INLINE Lanes negated(Lanes a) {
  return {_mm512_xor_ps(a.v, _mm512_castsi512_ps(_mm512_set1_epi32(INT32_MIN)))};
}
MF_INLINE Lanes magnitude(Lanes a) {
  return {_mm512_and_ps(a.v, _mm512_castsi512_ps(_mm512_set1_epi32(INT32_MAX)))};
}

MF_INLINE Mask greater(Lanes a, Lanes b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
MF_INLINE Mask less(Lanes a, Lanes b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
MF_INLINE Mask not_a_number(Lanes a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
MF_INLINE Mask equal(Ints a, Ints b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
MF_INLINE Lanes select(Mask where, Lanes yes, Lanes no) {
  return {_mm512_mask_blend_ps(where.v, no.v, yes.v)};
}

MF_INLINE Lanes larger(Lanes a, Lanes b) { return select(greater(a, b), a, b); }

MF_INLINE Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
MF_INLINE Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
MF_INLINE Ints operator&(Ints a, Ints b) { return {_mm512_and_si512(a.v, b.v)}; }
MF_INLINE Ints operator|(Ints a, Ints b) { return {_mm512_or_si512(a.v, b.v)}; }
MF_INLINE Ints operator^(Ints a, Ints b) { return {_mm512_xor_si512(a.v, b.v)}; }
MF_INLINE Ints larger(Ints a, Ints b) { return {_mm512_max_epi32(a.v, b.v)}; }
template <unsigned Bits>
MF_INLINE Ints shift_left(Ints a) {
  return {_mm512_slli_epi32(a.v, Bits)};
}
template <unsigned Bits>
MF_INLINE Ints shift_right(Ints a) {
  return {_mm512_srli_epi32(a.v, Bits)};
}
template <unsigned Bits>
MF_INLINE Ints shift_right_signed(Ints a) {
  return {_mm512_srai_epi32(a.v, Bits)};
}
MF_INLINE Lanes to_float(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
MF_INLINE Ints to_int(Lanes a) { return {_mm512_cvttps_epi32(a.v)}; }
MF_INLINE Ints round_to_int(Lanes a) { return {_mm512_cvtps_epi32(a.v)}; }
MF_INLINE void store_bytes(std::int8_t* to, Ints a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(a.v));
}
MF_INLINE void interleave(Ints a, Ints b, std::byte* to) {
  const __m512i low = _mm512_unpacklo_epi8(a.v, b.v), high = _mm512_unpackhi_epi8(a.v, b.v);
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  _mm512_storeu_si512(to, _mm512_permutex2var_epi64(low, first, high));
  _mm512_storeu_si512(to + 64, _mm512_permutex2var_epi64(low, second, high));
}
MF_INLINE void store_words(std::int16_t* to, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(a.v));
}
MF_INLINE void store_halves(std::byte* to, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(a.v));
}
MF_INLINE Lanes as_float(Ints a) { return {_mm512_castsi512_ps(a.v)}; }
MF_INLINE Ints as_int(Lanes a) { return {_mm512_castps_si512(a.v)}; }

MF_INLINE void make_opaque(Ints& a) { asm volatile("" : "+v"(a.v)); }

MF_INLINE float fold_add(Lanes a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

MF_INLINE float fold_largest(Lanes a) { return _mm512_reduce_max_ps(a.v); }
MF_INLINE std::int32_t fold_largest(Ints a) { return _mm512_reduce_max_epi32(a.v); }

MF_INLINE Lanes swap_neighbors(Lanes a) { return {_mm512_shuffle_ps(a.v, a.v, 0xb1)}; }
MF_INLINE Lanes first_half_twice(Lanes a) {
  return {_mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), a.v)};
}
MF_INLINE Lanes second_half_twice(Lanes a) {
  return {_mm512_permutexvar_ps(_mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15),
                                a.v)};
}
MF_INLINE Lanes negated_even(Lanes a) {
  return {_mm512_xor_ps(a.v, _mm512_castsi512_ps(_mm512_set1_epi64(std::int64_t{0x80000000})))};
}

MF_INLINE void transpose(Ints (&a)[16]) {
  __m512i b[16];
#pragma GCC unroll 8
  for (unsigned i = 0; i < 16; i += 2) {  // pairs of rows: numbers side by side
    b[i] = _mm512_unpacklo_epi32(a[i].v, a[i + 1].v);
    b[i + 1] = _mm512_unpackhi_epi32(a[i].v, a[i + 1].v);
  }
  __m512i c[16];  // c[4 i + k]: numbers k, k + 4, k + 8 and k + 12 of rows 4 i to 4 i + 3
#pragma GCC unroll 4
  for (unsigned i = 0; i < 16; i += 4) {
    c[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    c[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    c[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    c[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
#pragma GCC unroll 4
  for (unsigned k = 0; k < 4; ++k) {
    const __m512i first = _mm512_shuffle_i32x4(c[k], c[4 + k], 0x88);  // numbers k and k + 8 of rows 0 to 7
    const __m512i first_odd = _mm512_shuffle_i32x4(c[k], c[4 + k], 0xdd);  // k + 4 and k + 12
    const __m512i second = _mm512_shuffle_i32x4(c[8 + k], c[12 + k], 0x88);
    const __m512i second_odd = _mm512_shuffle_i32x4(c[8 + k], c[12 + k], 0xdd);
    a[k].v = _mm512_shuffle_i32x4(first, second, 0x88);
    a[k + 4].v = _mm512_shuffle_i32x4(first_odd, second_odd, 0x88);
    a[k + 8].v = _mm512_shuffle_i32x4(first, second, 0xdd);
    a[k + 12].v = _mm512_shuffle_i32x4(first_odd, second_odd, 0xdd);
  }
}

MF_INLINE void load_columns(const float* rows, Lanes (&columns)[4]) {
  const __m512 a = _mm512_loadu_ps(rows), b = _mm512_loadu_ps(rows + 16);
  const __m512 c = _mm512_loadu_ps(rows + 32), d = _mm512_loadu_ps(rows + 48);
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
#pragma GCC unroll 4
  for (int column = 0; column < 4; ++column) {
    const __m512i index = _mm512_add_epi32(first, _mm512_set1_epi32(column));
    columns[column].v =
        _mm512_shuffle_f32x4(_mm512_permutex2var_ps(a, index, b), _mm512_permutex2var_ps(c, index, d), 0x44);
  }
}

MF_INLINE void fold_add_tile(const Lanes (&a)[4][4], float scale, float* to, std::size_t stride) {
  // Adds lanes l + 8, then l + 4: columns end up in the quarters of a register.
  __m512 rows[4];
#pragma GCC unroll 4
  for (unsigned r = 0; r < 4; ++r) {
    const __m512 c01 = _mm512_add_ps(_mm512_shuffle_f32x4(a[r][0].v, a[r][1].v, 0x44),
                                     _mm512_shuffle_f32x4(a[r][0].v, a[r][1].v, 0xee));
    const __m512 c23 = _mm512_add_ps(_mm512_shuffle_f32x4(a[r][2].v, a[r][3].v, 0x44),
                                     _mm512_shuffle_f32x4(a[r][2].v, a[r][3].v, 0xee));
    rows[r] = _mm512_add_ps(_mm512_shuffle_f32x4(c01, c23, 0x88), _mm512_shuffle_f32x4(c01, c23, 0xdd));
  }
  // Adds lanes l + 2, then l + 1: rows end up in the lanes of a quarter.
  const __m512 r01 =
      _mm512_add_ps(_mm512_shuffle_ps(rows[0], rows[1], 0x44), _mm512_shuffle_ps(rows[0], rows[1], 0xee));
  const __m512 r23 =
      _mm512_add_ps(_mm512_shuffle_ps(rows[2], rows[3], 0x44), _mm512_shuffle_ps(rows[2], rows[3], 0xee));
  const __m512 sums =
      _mm512_mul_ps(_mm512_add_ps(_mm512_shuffle_ps(r01, r23, 0x88), _mm512_shuffle_ps(r01, r23, 0xdd)),
                    _mm512_set1_ps(scale));
  _mm_storeu_ps(to, _mm512_castps512_ps128(sums));
  _mm_storeu_ps(to + stride, _mm512_extractf32x4_ps(sums, 1));
  _mm_storeu_ps(to + 2 * stride, _mm512_extractf32x4_ps(sums, 2));
  _mm_storeu_ps(to + 3 * stride, _mm512_extractf32x4_ps(sums, 3));
}

// Four bits index a table of 16 floats, which ignores the bits above; two bits index one of two tables.
template <unsigned At, unsigned Bits>
MF_INLINE Lanes field(Ints unit) {
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
    return to_float(shift_right<At>(unit) & Ints{_mm512_set1_epi32((1 << Bits) - 1)});
  }
}

MF_INLINE bool any_bit(Ints a) { return _mm512_test_epi32_mask(a.v, a.v) != 0; }

}  // namespace avx512

struct Avx512 {
  using Lanes = avx512::Lanes;
  using Ints = avx512::Ints;

  static constexpr unsigned kFoldRows = 4, kFoldCols = 4;
  static constexpr unsigned kStripsAtOnce = 2;
  static constexpr unsigned kMatmulRows = 4, kMatmulSums = 16;
  static constexpr unsigned kInt8Blocks = 2, kInt8Rows = 8;
  static constexpr unsigned kAttentionUnits = 4;

  MF_INLINE Lanes broadcast(float a) { return {_mm512_set1_ps(a)}; }
  MF_INLINE Ints broadcast(std::int32_t a) { return {_mm512_set1_epi32(a)}; }

  MF_INLINE Lanes load(const float* from) { return {_mm512_loadu_ps(from)}; }
  MF_INLINE Lanes load_first(const float* from, std::size_t count) {
    return {_mm512_maskz_loadu_ps(avx512::first_lanes(count).v, from)};
  }
  MF_INLINE Ints load_unit(const std::byte* from) { return {_mm512_loadu_si512(from)}; }
  MF_INLINE Ints load_bytes(const std::int8_t* from) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
  }
  MF_INLINE Ints load_words(const std::byte* from) {
    return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  }
  MF_INLINE Ints load_halves(const std::byte* from) {
    return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
  }

  MF_INLINE void store_fence() { _mm_sfence(); }
  MF_INLINE void prefetch_l2(const void* line) { __builtin_prefetch(line, 0, 2); }
  MF_INLINE void prefetch_l2_in_place(const void* line) {
    asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char*>(line)) : "memory");
  }

  MF_INLINE float square_root(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

  MF_INLINE Ints dot2(Ints sum, Ints a, Ints b) {
    return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(a.v, b.v))};
  }
  MF_INLINE Ints add_pairs(Ints sum, Ints codes, Ints x) {
    return dot2(sum, {_mm512_maddubs_epi16(codes.v, x.v)}, {_mm512_set1_epi16(1)});
  }
  template <unsigned Bits>
  MF_INLINE Ints dot4(Ints sum, Ints codes, Ints x) {
    return dot4_by_pairs<Avx512, Bits>(sum, codes, x);
  }
};

}  // namespace
}  // namespace moeflux::vector
