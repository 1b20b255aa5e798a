// Integer products by AVX-512 without VNNI.

#include "kernels/dots_avx512.h"
#include "kernels/isa_tables.h"
#include "kernels/law.h"

namespace moeflux {
namespace {

constexpr unsigned kInt8Blocks = 2, kInt8Rows = 8;

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/lanes_math.inl"

#include "kernels/int8_pairs.inl"

#include "kernels/int8_vector.inl"

namespace moeflux {

constinit const Int8Kernels kAvx512Int8 = kInt8;

}  // namespace moeflux
