#pragma once
// The scalar tables, which are the specification of every kernel: tests compare the other tables with them.
// Immutable: any thread. The program uses kernels through a KernelTable (kernel_table.h).

#include "kernels/byte_attention.h"
#include "kernels/kernel_table.h"

namespace moeflux {

extern const MatmulKernels kScalarMatmul;
extern const TransposedKernels kScalarTransposed;
extern const Int8Kernels kScalarInt8;
extern const RowKernels kScalarRows;
extern const AttentionKernels kScalarAttention;
extern const ByteAttentionKernels kScalarByteAttention;
extern const DeltaNetKernels kScalarDeltaNet;

}  // namespace moeflux
