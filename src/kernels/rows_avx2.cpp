#include <cstddef>
#include <cstdint>

#include "kernels/isa_tables.h"
#include "kernels/lanes_avx2.h"
#include "kernels/law.h"

#include "kernels/lanes_math.inl"

#include "kernels/rows_vector.inl"

namespace moeflux {

const RowKernels kAvx2Rows = kRows;

}  // namespace moeflux
