#include <cstddef>
#include <cstdint>

#include "base/delta_state.h"
#include "kernels/isa_tables.h"
#include "kernels/lanes_avx512.h"
#include "kernels/law.h"

#include "kernels/lanes_math.inl"

#include "kernels/delta_net_vector.inl"

namespace moeflux {

const DeltaNetKernels kAvx512DeltaNet = kDeltaNet;

}  // namespace moeflux
