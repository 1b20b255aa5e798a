// Integer products by AVX-512 VNNI: four products and their sum are one instruction, which does not saturate.

#include "kernels/isa_tables.h"
#include "kernels/lanes_avx512.h"
#include "kernels/law.h"

namespace moeflux {
namespace {

constexpr unsigned kInt8Blocks = 2, kInt8Rows = 8;

template <unsigned Bits>
MF_LANES Ints dot4(Ints sum, Ints codes, Ints x) {
  return {_mm512_dpbusd_epi32(sum.v, codes.v, x.v)};
}

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/lanes_math.inl"

#include "kernels/int8_vector.inl"

namespace moeflux {

constinit const Int8Kernels kAvx512VnniInt8 = kInt8;

}  // namespace moeflux
