#pragma once
// The tables of each op family and instruction set, one a file; select.cpp puts them together. A new instruction
// set is its lanes_*.h and dots_*.h, six small files that include the families' .inl, and a few lines here and in select.cpp.

#include "kernels/byte_attention.h"
#include "kernels/kernel_table.h"

namespace moeflux {

extern const MatmulKernels kScalarMatmul, kAvx2Matmul, kAvx512Matmul;
extern const Int8Kernels kScalarInt8, kAvx2Int8, kAvxVnniInt8, kAvx512Int8, kAvx512VnniInt8, kAmxInt8;
extern const RowKernels kScalarRows, kAvx2Rows, kAvx512Rows;
extern const AttentionKernels kScalarAttention, kAvx2Attention, kAvx512Attention;
extern const ByteAttentionKernels kScalarByteAttention, kAvx2ByteAttention, kAvxVnniByteAttention,
    kAvx512ByteAttention, kAvx512VnniByteAttention;
extern const DeltaNetKernels kScalarDeltaNet, kAvx2DeltaNet, kAvx512DeltaNet;

}  // namespace moeflux
