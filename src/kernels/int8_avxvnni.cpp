// Integer products by AVX-VNNI.

#include "kernels/dots_avxvnni.h"
#include "kernels/isa_tables.h"
#include "kernels/law.h"

namespace moeflux {
namespace {

constexpr unsigned kInt8Blocks = 1, kInt8Rows = 4;

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/lanes_math.inl"

#include "kernels/int8_vector.inl"

namespace moeflux {

constinit const Int8Kernels kAvxVnniInt8 = kInt8;

}  // namespace moeflux
