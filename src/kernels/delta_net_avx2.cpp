#include <cstddef>
#include <cstdint>

#include "base/delta_state.h"
#include "kernels/isa_tables.h"
#include "kernels/lanes_avx2.h"
#include "kernels/law.h"

#include "kernels/lanes_math.inl"

#include "kernels/delta_net_vector.inl"

namespace moeflux {

const DeltaNetKernels kAvx2DeltaNet = kDeltaNet;

}  // namespace moeflux
