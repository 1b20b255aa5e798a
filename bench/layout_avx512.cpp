// The products of the layouts with AVX-512 and VNNI: a vector is one block of 16 rows.

#include "layout_products.h"

namespace moeflux::layout_bench {
namespace {

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  static constexpr std::uint32_t kLanes = 16;
  static constexpr std::uint32_t kExactBatch = 4, kInt8Batch = 16;  // the most that 32 registers hold

  static bool runs_here() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("fma");
  }

  static F zero() { return _mm512_setzero_ps(); }
  static I integer_zero() { return _mm512_setzero_si512(); }
  static F all(float x) { return _mm512_set1_ps(x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F multiply(F a, F b) { return _mm512_mul_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  static void store(float* to, F a) { _mm512_storeu_ps(to, a); }

  static I load(const std::uint8_t* from) { return _mm512_load_si512(from); }
  static I gather(const std::uint8_t* from, std::uint32_t stride) {
    const I lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_i32gather_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(stride))),
                                  from, 1);
  }
  // BF16 → float, from either half of each lane or from one per lane.
  static F from_lower_half(I a) { return _mm512_castsi512_ps(_mm512_slli_epi32(a, 16)); }
  static F from_upper_half(I a) {
    return _mm512_castsi512_ps(_mm512_and_si512(a, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }
  static F from_halves(const std::uint8_t* from) {
    return from_lower_half(_mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(from))));
  }

  // The four bits of each lane from `shift` on, as a float: a table of 16 that ignores the bits above.
  static F code(I codes, int shift) {
    const F numbers = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(codes, static_cast<unsigned>(shift)), numbers);
  }
  static I low_nibbles(I codes) { return _mm512_and_si512(codes, _mm512_set1_epi8(15)); }
  static I high_nibbles(I codes) { return low_nibbles(_mm512_srli_epi32(codes, 4)); }
  static I quad(const std::int8_t* x) {
    int four;
    __builtin_memcpy(&four, x, 4);
    return _mm512_set1_epi32(four);
  }
  static I add_products(I sum, I low, I x_low, I high, I x_high) {
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, low, x_low), high, x_high);
  }

  static __m256i row_products(__m256i low, __m256i x_low, __m256i high, __m256i x_high) {
    return _mm256_dpbusd_epi32(_mm256_dpbusd_epi32(_mm256_setzero_si256(), low, x_low), high, x_high);
  }
  static std::uint64_t read(const std::uint8_t* bytes, std::size_t size);
};

std::uint64_t Avx512::read(const std::uint8_t* bytes, std::size_t size) {
  I sums[4] = {integer_zero(), integer_zero(), integer_zero(), integer_zero()};
  for (std::size_t i = 0; i < size; i += 256)
    for (std::size_t k = 0; k < 4; ++k) sums[k] = _mm512_xor_si512(sums[k], load(bytes + i + k * 64));
  const I all = _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
  std::uint64_t parts[8];
  _mm512_storeu_si512(parts, all);
  return parts[0] ^ parts[7];
}

}  // namespace

const Kernels kAvx512Kernels = kernels_of<Avx512>("avx512");

}  // namespace moeflux::layout_bench
