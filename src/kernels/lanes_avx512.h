#pragma once
// Sixteen numbers at once, by AVX-512 (F, BW, DQ, VL). Included by the kernels of this ISA only.
//
// The vocabulary in which kernels/*.inl are written; lanes_avx2.h has the same names. Every operation rounds each
// lane as the law says for one number, so an algorithm written in these words has one result. Everything has internal
// linkage: an inline function with a wider instruction set must not be picked by the linker for everyone.

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

#define MF_LANES [[gnu::always_inline]] static inline

namespace moeflux {
namespace {

struct Lanes {
  __m512 v;
};
struct Ints {
  __m512i v;
};
struct Mask {
  __mmask16 v;
};

// How many sets of four chains go side by side in the delta rule.
constexpr unsigned kStripsAtOnce = 2;

MF_LANES Mask first_lanes(std::size_t count) { return {static_cast<__mmask16>((1u << count) - 1)}; }

MF_LANES Lanes load(const float* from) { return {_mm512_loadu_ps(from)}; }
MF_LANES void store(float* to, Lanes a) { _mm512_storeu_ps(to, a.v); }
// Past the caches; `to` is a multiple of 64 bytes. Others see it after end_of_streams().
MF_LANES void stream(float* to, Lanes a) { _mm512_stream_ps(to, a.v); }
MF_LANES void end_of_streams() { _mm_sfence(); }
// Into the second-level cache, which can wait for more lines than the first.
MF_LANES void ask_for(const void* line) { __builtin_prefetch(line, 0, 2); }
// The same at this very place: compilers move the other one about, and where it stands among writes can matter.
MF_LANES void ask_for_here(const void* line) {
  asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char*>(line)) : "memory");
}
// The first `count` (0..16) lanes; the others are read as zero, and not written. Nothing beyond is touched.
MF_LANES Lanes load_first(const float* from, std::size_t count) {
  return {_mm512_maskz_loadu_ps(first_lanes(count).v, from)};
}
MF_LANES void store_first(float* to, Lanes a, std::size_t count) {
  _mm512_mask_storeu_ps(to, first_lanes(count).v, a.v);
}
MF_LANES Ints load_unit(const std::byte* from) { return {_mm512_loadu_si512(from)}; }  // 64 bytes
MF_LANES void store_unit(std::byte* to, Ints a) { _mm512_storeu_si512(to, a.v); }

MF_LANES Lanes broadcast(float a) { return {_mm512_set1_ps(a)}; }
MF_LANES Ints broadcast(std::int32_t a) { return {_mm512_set1_epi32(a)}; }

MF_LANES Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
MF_LANES Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
MF_LANES Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
MF_LANES Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
MF_LANES Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
MF_LANES Lanes negated(Lanes a) {
  return {_mm512_xor_ps(a.v, _mm512_castsi512_ps(_mm512_set1_epi32(INT32_MIN)))};
}
MF_LANES Lanes magnitude(Lanes a) {
  return {_mm512_and_ps(a.v, _mm512_castsi512_ps(_mm512_set1_epi32(INT32_MAX)))};
}

MF_LANES Mask greater(Lanes a, Lanes b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
MF_LANES Mask less(Lanes a, Lanes b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
MF_LANES Mask not_a_number(Lanes a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
MF_LANES Mask equal(Ints a, Ints b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
MF_LANES Lanes select(Mask where, Lanes yes, Lanes no) {
  return {_mm512_mask_blend_ps(where.v, no.v, yes.v)};
}

MF_LANES Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
MF_LANES Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
MF_LANES Ints operator&(Ints a, Ints b) { return {_mm512_and_si512(a.v, b.v)}; }
MF_LANES Ints operator|(Ints a, Ints b) { return {_mm512_or_si512(a.v, b.v)}; }
MF_LANES Ints operator^(Ints a, Ints b) { return {_mm512_xor_si512(a.v, b.v)}; }
MF_LANES Ints lanes_larger(Ints a, Ints b) { return {_mm512_max_epi32(a.v, b.v)}; }
template <unsigned Bits>
MF_LANES Ints shift_left(Ints a) {
  return {_mm512_slli_epi32(a.v, Bits)};
}
template <unsigned Bits>
MF_LANES Ints shift_right(Ints a) {  // zeros come in
  return {_mm512_srli_epi32(a.v, Bits)};
}
template <unsigned Bits>
MF_LANES Ints shift_right_signed(Ints a) {  // the sign comes in
  return {_mm512_srai_epi32(a.v, Bits)};
}
MF_LANES Lanes to_float(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
MF_LANES Ints to_int(Lanes a) { return {_mm512_cvttps_epi32(a.v)}; }       // of integers in range
MF_LANES Ints round_to_int(Lanes a) { return {_mm512_cvtps_epi32(a.v)}; }  // to nearest, ties to even
// The lanes, each -128..127, as bytes.
MF_LANES void store_bytes(std::int8_t* to, Ints a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(a.v));
}
MF_LANES Ints load_bytes(const std::int8_t* from) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}
// 32 signed bytes as words.
MF_LANES Ints load_words(const std::byte* from) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
// Two times 64 bytes, in turn: 128 bytes.
MF_LANES void interleave(Ints a, Ints b, std::byte* to) {
  const __m512i low = _mm512_unpacklo_epi8(a.v, b.v), high = _mm512_unpackhi_epi8(a.v, b.v);
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  _mm512_storeu_si512(to, _mm512_permutex2var_epi64(low, first, high));
  _mm512_storeu_si512(to + 64, _mm512_permutex2var_epi64(low, second, high));
}
// The lanes, each -32768..32767, as words.
MF_LANES void store_words(std::int16_t* to, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(a.v));
}
// The lanes, each 0..65535, as 16 bits, and back with zeros above.
MF_LANES void store_halves(std::byte* to, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(a.v));
}
MF_LANES Ints load_halves(const std::byte* from) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
MF_LANES Lanes as_float(Ints a) { return {_mm512_castsi512_ps(a.v)}; }
MF_LANES Ints as_int(Lanes a) { return {_mm512_castps_si512(a.v)}; }

// Takes from the compiler what it knows of a.
MF_LANES void make_opaque(Ints& a) { asm volatile("" : "+v"(a.v)); }

// law::fold_add.
MF_LANES float fold_add(Lanes a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

MF_LANES float fold_largest(Lanes a) { return _mm512_reduce_max_ps(a.v); }  // of numbers, no NaN
MF_LANES std::int32_t fold_largest(Ints a) { return _mm512_reduce_max_epi32(a.v); }

MF_LANES float square_root(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

// For pairs of neighbours: lanes 1 0 3 2 ...; lanes 0..7 or 8..15, each twice; other signs in lanes 0 2 4 ...
MF_LANES Lanes swap_neighbours(Lanes a) { return {_mm512_shuffle_ps(a.v, a.v, 0xb1)}; }
MF_LANES Lanes first_half_twice(Lanes a) {
  return {_mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), a.v)};
}
MF_LANES Lanes second_half_twice(Lanes a) {
  return {_mm512_permutexvar_ps(_mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15),
                                a.v)};
}
MF_LANES Lanes negated_even(Lanes a) {
  return {_mm512_xor_ps(a.v, _mm512_castsi512_ps(_mm512_set1_epi64(std::int64_t{0x80000000})))};
}

// Lane j of a[i] becomes lane i of a[j].
MF_LANES void transpose(Ints (&a)[16]) {
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

// The columns of sixteen rows of four numbers.
MF_LANES void load_columns(const float* rows, Lanes (&columns)[4]) {
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

// to[c * stride + r] = fold_add(a[r][c]) * scale: a tile of sums at once, since folds can share shuffles.
constexpr unsigned kTileRows = 4, kTileCols = 4;
MF_LANES void fold_add_tile(const Lanes (&a)[kTileRows][kTileCols], float scale, float* to,
                            std::size_t stride) {
  // Lanes l + 8, then l + 4: columns come to lie in the quarters of a register.
  __m512 rows[kTileRows];
#pragma GCC unroll 4
  for (unsigned r = 0; r < kTileRows; ++r) {
    const __m512 c01 = _mm512_add_ps(_mm512_shuffle_f32x4(a[r][0].v, a[r][1].v, 0x44),
                                     _mm512_shuffle_f32x4(a[r][0].v, a[r][1].v, 0xee));
    const __m512 c23 = _mm512_add_ps(_mm512_shuffle_f32x4(a[r][2].v, a[r][3].v, 0x44),
                                     _mm512_shuffle_f32x4(a[r][2].v, a[r][3].v, 0xee));
    rows[r] = _mm512_add_ps(_mm512_shuffle_f32x4(c01, c23, 0x88), _mm512_shuffle_f32x4(c01, c23, 0xdd));
  }
  // Lanes l + 2, then l + 1: rows come to lie in the lanes of a quarter.
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

}  // namespace
}  // namespace moeflux
