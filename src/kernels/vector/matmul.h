#pragma once
// The matrix products, sixteen output rows at a time; scalar/matmul.cpp is the specification.
//
// A unit of tile16 is 16 lanes, and lane r is row r: a column of a block is one Lanes, and nothing is ever
// added across lanes. Each column of the matrix is decoded in registers and feeds the chains of several rows
// of x.
//
// Tried and dropped (bench/kernels_bench, processor time, Zen 4, AVX-512, g++ -O2): decoding a group into
// memory for 32 rows of x, 47 instead of 54 GFMA/s for a batch of 256, because storing a column costs more
// than decoding it again; two or four blocks side by side for one row of x, 9 to 14 instead of 17 GB/s except
// for 4096 columns, because the processor prefetches one stream well, but not several.

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/vector/encodings.h"
#include "kernels/vector/lanes.h"

namespace moeflux::vector {
namespace {

template <class Isa>
struct Matmul {
  using Lanes = LanesOf<Isa>;
  using Codes = Encodings<Isa>;

  // Chains [First, First + Count) of the four of a group, for `Rows` rows of x. Column k belongs to chain k
  // mod 4.
  template <unsigned Rows, unsigned First, unsigned Count>
  struct Chains {
    const float* x[Rows];  // at the first column of the group
    Lanes c[Count][Rows];

    [[gnu::always_inline]] Chains(const float* const (&rows)[Rows], std::uint32_t first_col) {
#pragma GCC unroll 8
      for (unsigned row = 0; row < Rows; ++row) {
        x[row] = rows[row] + first_col;
#pragma GCC unroll 4
        for (unsigned chain = 0; chain < Count; ++chain) c[chain][row] = Isa::broadcast(0.0f);
      }
    }

    // w is column k + Chain, where k is a multiple of 4. Columns of other chains are ignored, so the compiler
    // never decodes them.
    template <unsigned Chain>
    [[gnu::always_inline]] void take(std::size_t k, Lanes w) {
      if constexpr (Chain >= First && Chain < First + Count) {
#pragma GCC unroll 8
        for (unsigned row = 0; row < Rows; ++row)
          c[Chain - First][row] = fma(w, Isa::broadcast(x[row][k + Chain]), c[Chain - First][row]);
      }
    }

    [[gnu::always_inline]] Lanes sum(unsigned row) const {
      if constexpr (Count == 4) {
        return (c[0][row] + c[1][row]) + (c[2][row] + c[3][row]);
      } else if constexpr (Count == 2) {
        return c[0][row] + c[1][row];
      } else {
        return c[0][row];
      }
    }
  };

  // sum[row] = the sum of chains [First, First + Count) of a group, added in pairs as the law says.
  template <unsigned First, unsigned Count, unsigned Rows, class Format>
  MF_INLINE void add_chains(const Format& format, const Group& group, const float* const (&x)[Rows],
                            Lanes (&sum)[Rows]) {
    if constexpr (Count > 1 && Count * Rows > Isa::kMatmulSums) {
      // Too many for the registers: one half after the other, each with the columns that it takes.
      Lanes second[Rows];
      add_chains<First, Count / 2>(format, group, x, sum);
      add_chains<First + Count / 2, Count / 2>(format, group, x, second);
#pragma GCC unroll 8
      for (unsigned row = 0; row < Rows; ++row) sum[row] = sum[row] + second[row];
    } else {
      Chains<Rows, First, Count> chains(x, group.first);
      format.feed(group, chains);
#pragma GCC unroll 8
      for (unsigned row = 0; row < Rows; ++row) sum[row] = chains.sum(row);
    }
  }

  // Multiplies rows [first_row, first_row + Rows) of the batch with one block.
  template <unsigned Rows, class Format>
  MF_INLINE void multiply_rows(const Format& format, const MatmulArgs& args, std::uint32_t first_row,
                               std::uint32_t block) {
    const float* x[Rows];
    const float* sums[Rows];
    Lanes acc[Rows];
#pragma GCC unroll 8
    for (unsigned row = 0; row < Rows; ++row) {
      const std::uint64_t x_row = args.x_rows != nullptr ? args.x_rows[first_row + row] : first_row + row;
      x[row] = args.x + x_row * args.x_stride;
      sums[row] = args.sums != nullptr ? args.sums + x_row * args.sums_stride : nullptr;
      acc[row] = Isa::broadcast(0.0f);
    }
    const std::byte* units = args.blocks + block * args.block_stride;
    for (std::uint32_t first = 0; first < args.cols; first += format.group_cols) {
      const std::uint32_t left = args.cols - first;
      const std::uint32_t cols = left < format.group_cols ? left : format.group_cols;
      const Group group{units, first, cols, format.has_nan(units, cols)};
      Lanes s[Rows];
      add_chains<0, 4>(format, group, x, s);
      const auto scales = format.scales(group);
#pragma GCC unroll 8
      for (unsigned row = 0; row < Rows; ++row)
        acc[row] = format.add_group(acc[row], s[row], group, scales, sums[row]);
      units += format.group_bytes(cols);
    }
    const std::uint32_t rows_of_block = block + 1 == args.block_count ? args.last_block_rows : kBlockRows;
    float* y = args.y + first_row * args.y_stride + std::uint64_t{block} * args.y_block_stride;
#pragma GCC unroll 8
    for (unsigned row = 0; row < Rows; ++row) store_block(y + row * args.y_stride, acc[row], rows_of_block);
  }

  // The same for a number of rows known at run time, 1..Most.
  template <unsigned Most, class Format>
  MF_INLINE void multiply_some(const Format& format, const MatmulArgs& args, std::uint32_t first_row,
                               std::uint32_t rows, std::uint32_t block) {
    if (rows == Most) return multiply_rows<Most>(format, args, first_row, block);
    if constexpr (Most > 1) multiply_some<Most - 1>(format, args, first_row, rows, block);
  }

  // Rows of x that visit a block before the next is read: the block and the rows stay in the L2 cache.
  static constexpr std::uint32_t kChunkRows = 24;

  template <class Format>
  static void multiply(const MatmulArgs& args) noexcept {
    const Format format(args);
    for (std::uint32_t chunk = 0; chunk < args.batch; chunk += kChunkRows) {
      const std::uint32_t end = args.batch - chunk < kChunkRows ? args.batch : chunk + kChunkRows;
      for (std::uint32_t block = 0; block < args.block_count; ++block) {
        // Split evenly: every share decodes the block, small shares too.
        std::uint32_t shares = (end - chunk + Isa::kMatmulRows - 1) / Isa::kMatmulRows;
        for (std::uint32_t row = chunk; shares > 0; --shares) {
          const std::uint32_t rows = (end - row + shares - 1) / shares;
          multiply_some<Isa::kMatmulRows>(format, args, row, rows, block);
          row += rows;
        }
      }
    }
  }

  static void sums_of_32(const float* x, std::uint32_t n, float* sums) noexcept {
    for (std::uint64_t first = 0; first < n; first += kSumCols)
      sums[first / kSumCols] =
          fold_add(Isa::broadcast(0.0f) + Isa::load(x + first) + Isa::load(x + first + kSumCols / 2));
  }

  static constexpr MatmulKernels kTable = {
      .affine2 = multiply<typename Codes::template Affine<2>>,
      .affine3 = multiply<typename Codes::template Affine<3>>,
      .affine4 = multiply<typename Codes::template Affine<4>>,
      .affine5 = multiply<typename Codes::template Affine<5>>,
      .affine6 = multiply<typename Codes::template Affine<6>>,
      .affine8 = multiply<typename Codes::template Affine<8>>,
      .bf16 = multiply<typename Codes::Bf16>,
      .f32 = multiply<typename Codes::F32>,
      .fp8 = multiply<typename Codes::Fp8>,
      .sums = sums_of_32,
  };
};

}  // namespace
}  // namespace moeflux::vector
