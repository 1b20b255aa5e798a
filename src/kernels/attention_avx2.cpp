#include <cstddef>
#include <cstdint>

#include "base/kv_numbers.h"
#include "kernels/isa_tables.h"
#include "kernels/lanes_avx2.h"
#include "kernels/law.h"

#include "kernels/lanes_math.inl"

#include "kernels/softmax_vector.inl"

#include "kernels/attention_vector.inl"

namespace moeflux {

const AttentionKernels kAvx2Attention = kAttention;

}  // namespace moeflux
