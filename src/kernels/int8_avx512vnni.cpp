// Integer products by AVX-512 VNNI.

#include "kernels/dots_avx512vnni.h"
#include "kernels/isa_tables.h"
#include "kernels/law.h"

namespace moeflux {
namespace {

constexpr unsigned kInt8Blocks = 2, kInt8Rows = 8;

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/lanes_math.inl"

#include "kernels/int8_vector.inl"

namespace moeflux {

constinit const Int8Kernels kAvx512VnniInt8 = kInt8;

}  // namespace moeflux
