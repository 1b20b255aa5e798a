// Attention over bytes by AVX-512 without VNNI.

#include "kernels/byte_attention.h"
#include "kernels/dots_avx512.h"
#include "kernels/isa_tables.h"
#include "kernels/law.h"

namespace moeflux {
namespace {

constexpr unsigned kUnits = 4;

}  // namespace
}  // namespace moeflux

#include "kernels/codes_vector.inl"

#include "kernels/lanes_math.inl"

#include "kernels/int8_pairs.inl"

#include "kernels/softmax_vector.inl"

#include "kernels/byte_attention_vector.inl"

namespace moeflux {

constinit const ByteAttentionKernels kAvx512ByteAttention = kByteAttention;

}  // namespace moeflux
