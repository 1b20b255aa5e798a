#pragma once
// Prototypes of 4-bit products over four layouts of a matrix, one table per instruction set.
//
// They only serve to choose a layout (docs/decisions/0004-tile16.md): one thread, group 64, rows a multiple
// of 16, batches of 1 or of a multiple of 16. All of them compute the sums of the law of arithmetic in its
// order, so every kernel produces the same bits as the plain loop. Plain data: files that are compiled for an
// instruction set include only integer types of the standard library. Pure functions, thread-safe.

#include <cstddef>
#include <cstdint>

namespace moeflux::layout_bench {

inline constexpr std::uint32_t kGroup = 64;
inline constexpr std::uint32_t kBlockRows = 16;
inline constexpr std::size_t kCodesBytes = 512;  // of a group of a block
inline constexpr std::size_t kScalesBytes = 64;  // its scales and biases
inline constexpr std::size_t kGroupBytes = kCodesBytes + kScalesBytes;

enum class Layout {
  rows,    // as MLX stores it: all codes row by row, then all scales, then all biases
  tile16,  // per block of 16 rows and group: codes, 16 scales, 16 biases
  paired,  // the same with (bias, scale) of a row in one 32-bit lane: quant/tile16.h
  split,   // paired, but with the scales of all groups of a block after their codes
};
inline constexpr std::size_t kLayouts = 4;

struct Product {
  const std::uint8_t* weights;  // in the layout of the kernel; at 64 bytes
  std::uint32_t rows, cols;
  std::uint32_t batch;
  // exact: y = W x in float32.
  const float* x;     // [batch][cols]
  const float* sums;  // [batch][groups], of x
  // int8: the same with x = x8 * x8_scale.
  const std::int8_t* x8;   // [batch][cols], in the order in which the kernel meets the codes
  const float* x8_scales;  // [batch][groups]
  const float* x8_sums;    // [batch][groups], x8_scale * sum of x8
  float* y;                // [batch][rows]

  std::uint32_t groups() const { return cols / kGroup; }
};

using Kernel = void (*)(const Product&);

struct Kernels {
  const char* isa;
  bool (*runs_here)();
  Kernel exact[kLayouts], int8[kLayouts];  // by Layout
  // Row-major as it is usually computed: a vector is part of one row, and is added up across its lanes.
  // batch 1; x8 has the even columns of a group before the odd ones.
  Kernel int8_across;
  // Measures the memory bandwidth: reads `size` bytes (a multiple of 256) and returns an unused checksum.
  std::uint64_t (*read)(const std::uint8_t* bytes, std::size_t size);
};

extern const Kernels kAvx512Kernels;
extern const Kernels kAvx2Kernels;

}  // namespace moeflux::layout_bench
