// The products of the layouts with AVX2: a vector is half a block, 8 rows.

#include "layout_products.h"

namespace moeflux::layout_bench {
namespace {

struct Avx2 {
  using F = __m256;
  using I = __m256i;
  static constexpr std::uint32_t kLanes = 8;
  static constexpr std::uint32_t kExactBatch = 2, kInt8Batch = 4;  // the most that 16 registers hold

  static bool runs_here() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

  static F zero() { return _mm256_setzero_ps(); }
  static I integer_zero() { return _mm256_setzero_si256(); }
  static F all(float x) { return _mm256_set1_ps(x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F multiply(F a, F b) { return _mm256_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F to_float(I a) { return _mm256_cvtepi32_ps(a); }
  static void store(float* to, F a) { _mm256_storeu_ps(to, a); }

  static I load(const std::uint8_t* from) { return _mm256_load_si256(reinterpret_cast<const I*>(from)); }
  static I gather(const std::uint8_t* from, std::uint32_t stride) {
    const I lanes = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return _mm256_i32gather_epi32(reinterpret_cast<const int*>(from),
                                  _mm256_mullo_epi32(lanes, _mm256_set1_epi32(static_cast<int>(stride))), 1);
  }
  // BF16 → float, from either half of each lane or from one per lane.
  static F from_lower_half(I a) { return _mm256_castsi256_ps(_mm256_slli_epi32(a, 16)); }
  static F from_upper_half(I a) {
    return _mm256_castsi256_ps(_mm256_and_si256(a, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
  }
  static F from_halves(const std::uint8_t* from) {
    return from_lower_half(_mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from))));
  }

  static F code(I codes, int shift) {
    return to_float(_mm256_and_si256(_mm256_srli_epi32(codes, shift), _mm256_set1_epi32(15)));
  }
  static I low_nibbles(I codes) { return _mm256_and_si256(codes, _mm256_set1_epi8(15)); }
  static I high_nibbles(I codes) { return low_nibbles(_mm256_srli_epi32(codes, 4)); }
  static I quad(const std::int8_t* x) {
    int four;
    __builtin_memcpy(&four, x, 4);
    return _mm256_set1_epi32(four);
  }
  // Four products of a code below 16 and an int8 are at most 7,620 in 16 bits: nothing saturates.
  static I add_products(I sum, I low, I x_low, I high, I x_high) {
    const I pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, x_low), _mm256_maddubs_epi16(high, x_high));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }

  static I row_products(I low, I x_low, I high, I x_high) {
    return add_products(integer_zero(), low, x_low, high, x_high);
  }
  static std::uint64_t read(const std::uint8_t* bytes, std::size_t size);
};

std::uint64_t Avx2::read(const std::uint8_t* bytes, std::size_t size) {
  I sums[8];
  for (I& sum : sums) sum = integer_zero();
  for (std::size_t i = 0; i < size; i += 256)
    for (std::size_t k = 0; k < 8; ++k) sums[k] = _mm256_xor_si256(sums[k], load(bytes + i + k * 32));
  for (std::size_t k = 1; k < 8; ++k) sums[0] = _mm256_xor_si256(sums[0], sums[k]);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(sums[0], 0) ^ _mm256_extract_epi64(sums[0], 3));
}

}  // namespace

const Kernels kAvx2Kernels = kernels_of<Avx2>("avx2");

}  // namespace moeflux::layout_bench
