// Integer products by AVX2.

#include "kernels/dots_avx2.h"
#include "kernels/isa_tables.h"
#include "kernels/law.h"

namespace moeflux {
namespace {

constexpr unsigned kInt8Blocks = 1, kInt8Rows = 4;

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/lanes_math.inl"

#include "kernels/int8_pairs.inl"

#include "kernels/int8_vector.inl"

namespace moeflux {

constinit const Int8Kernels kAvx2Int8 = kInt8;

}  // namespace moeflux
