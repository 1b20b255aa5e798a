// Integer products by AVX-VNNI: those of AVX-512 VNNI in registers of 256 bits, for processors without AVX-512.

#include "kernels/isa_tables.h"
#include "kernels/lanes_avx2.h"
#include "kernels/law.h"

namespace moeflux {
namespace {

constexpr unsigned kInt8Blocks = 1, kInt8Rows = 4;

template <unsigned Bits>
MF_LANES Ints dot4(Ints sum, Ints codes, Ints x) {
  return {_mm256_dpbusd_avx_epi32(sum.low, codes.low, x.low),
          _mm256_dpbusd_avx_epi32(sum.high, codes.high, x.high)};
}

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/lanes_math.inl"

#include "kernels/int8_vector.inl"

namespace moeflux {

constinit const Int8Kernels kAvxVnniInt8 = kInt8;

}  // namespace moeflux
