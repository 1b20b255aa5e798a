#pragma once
// The transposed products; scalar/transposed.cpp is the specification.
//
// Lane r of a column is row r of its block, so sixteen rows at a time are added up in the lanes of one sum
// per column, which is folded at the end. The sums of a group of columns stay in the L1 cache while all
// blocks are read; each decoded column serves several rows of x.

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/vector/encodings.h"
#include "kernels/vector/lanes.h"

namespace moeflux::vector {
namespace {

template <class Isa>
struct Transposed {
  using Lanes = LanesOf<Isa>;
  using Codes = Encodings<Isa>;

  static constexpr std::uint32_t kMaxGroup = 128;
  static constexpr unsigned kRows = 2;  // of x at once: their sums of a group of 128 columns take 16 KiB
  static constexpr unsigned kFolds = Isa::kFoldRows * Isa::kFoldCols;

  // The sums of a group: [column][row of x].
  template <unsigned Rows>
  using Sums = Lanes[kMaxGroup][Rows];

  // Adds one block's columns to the sums. Of a partial block, only its rows.
  template <unsigned Rows, bool IsPartial>
  struct Columns {
    Sums<Rows>& sums;
    std::uint32_t rows_of_block;
    Lanes x[Rows];  // what each row of the block is multiplied by

    template <unsigned I>
    [[gnu::always_inline]] void take(std::size_t k, Lanes w) {
#pragma GCC unroll 8
      for (unsigned row = 0; row < Rows; ++row) {
        const Lanes before = sums[k + I][row];
        const Lanes sum = fma(w, x[row], before);
        sums[k + I][row] = IsPartial ? first_rows(rows_of_block, sum, before) : sum;
      }
    }
  };

  // The first `count` lanes of a, and the others of b.
  MF_INLINE Lanes first_rows(std::uint32_t count, Lanes a, Lanes b) {
    alignas(64) static constexpr float kRowNumbers[kWidth] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                              8, 9, 10, 11, 12, 13, 14, 15};
    return select(less(Isa::load(kRowNumbers), Isa::broadcast(static_cast<float>(count))), a, b);
  }

  // What a row of x is multiplied by, and what it adds to the sum of biases.
  struct Factors {
    Lanes x, bias;
  };
  MF_INLINE Factors factors(const GroupScales<Isa>& scales, Lanes x, Lanes bias) {
    return {scales.scale * x, fma(scales.bias, x, bias)};
  }
  MF_INLINE Factors factors(const typename Codes::Plain::Scales& /*scales*/, Lanes x, Lanes bias) {
    return {x, bias};
  }
  MF_INLINE Factors factors(const typename Codes::Fp8::Scales& scales, Lanes x, Lanes bias) {
    return {scales.scale * x, bias};
  }

  // y[c] = the folded sum of column c, plus `bias` if the encoding has biases.
  template <bool HasBias, unsigned Rows>
  MF_INLINE void fold_columns(const Sums<Rows>& sums, unsigned row, std::uint32_t cols, float bias,
                              float* y) {
    for (std::uint32_t first = 0; first < cols; first += kFolds) {
      Lanes tile[Isa::kFoldRows][Isa::kFoldCols];
      for (unsigned r = 0; r < Isa::kFoldRows; ++r)
        for (unsigned c = 0; c < Isa::kFoldCols; ++c) tile[r][c] = sums[first + c * Isa::kFoldRows + r][row];
      float folded[kFolds];
      fold_add_tile(tile, 1.0f, folded, Isa::kFoldRows);
      const std::uint32_t count = cols - first < kFolds ? cols - first : kFolds;
      for (std::uint32_t i = 0; i < count; ++i) y[first + i] = HasBias ? folded[i] + bias : folded[i];
    }
  }

  // Adds a group of columns of one block to the sums. `rows`: of x, at the block's first row.
  template <bool IsPartial, unsigned Rows, class Format>
  MF_INLINE void add_block(const Format& format, const Group& group, std::uint32_t rows_of_block,
                           const float* const (&rows)[Rows], Sums<Rows>& sums, Lanes (&bias)[Rows]) {
    const auto scales = format.scales(group);
    Columns<Rows, IsPartial> columns{sums, rows_of_block, {}};
#pragma GCC unroll 8
    for (unsigned row = 0; row < Rows; ++row) {
      const Lanes x = IsPartial ? Isa::load_first(rows[row], rows_of_block) : Isa::load(rows[row]);
      const Factors factor = factors(scales, x, bias[row]);
      columns.x[row] = factor.x;
      bias[row] = IsPartial ? first_rows(rows_of_block, factor.bias, bias[row]) : factor.bias;
    }
    format.feed(group, columns);
  }

  // Rows [first_row, first_row + Rows) of x.
  template <unsigned Rows, class Format>
  MF_INLINE void multiply_rows(const Format& format, const TransposedArgs& args, std::uint32_t first_row) {
    Sums<Rows> sums;
    const std::byte* group_of_first = args.blocks;
    for (std::uint32_t first = 0; first < args.cols; first += format.group_cols) {
      const std::uint32_t left = args.cols - first;
      const std::uint32_t cols = left < format.group_cols ? left : format.group_cols;
      const std::uint32_t padded = (cols + kFolds - 1) / kFolds * kFolds;
      for (std::uint32_t c = 0; c < padded; ++c)
        for (unsigned row = 0; row < Rows; ++row) sums[c][row] = Isa::broadcast(0.0f);
      Lanes bias[Rows];
#pragma GCC unroll 8
      for (unsigned row = 0; row < Rows; ++row) bias[row] = Isa::broadcast(0.0f);
      for (std::uint32_t block = 0; block < args.block_count; ++block) {
        const std::byte* const units = group_of_first + block * args.block_stride;
        const Group group{units, first, cols, format.has_nan(units, cols)};
        const float* x[Rows];
#pragma GCC unroll 8
        for (unsigned row = 0; row < Rows; ++row)
          x[row] = args.x + (first_row + row) * args.x_stride + std::size_t{block} * kBlockRows;
        if (block + 1 == args.block_count && args.last_block_rows < kBlockRows)
          add_block<true>(format, group, args.last_block_rows, x, sums, bias);
        else
          add_block<false>(format, group, kBlockRows, x, sums, bias);
      }
      for (unsigned row = 0; row < Rows; ++row)
        fold_columns<Format::kHasBias, Rows>(sums, row, cols, fold_add(bias[row]),
                                             args.y + (first_row + row) * args.y_stride + first);
      group_of_first += format.group_bytes(cols);
    }
  }

  template <class Format>
  static void multiply(const TransposedArgs& args) noexcept {
    const Format format(args);
    std::uint32_t row = 0;
    for (; row + kRows <= args.batch; row += kRows) multiply_rows<kRows>(format, args, row);
    for (; row < args.batch; ++row) multiply_rows<1>(format, args, row);
  }

  static constexpr TransposedKernels kTable = {
      .affine2 = multiply<typename Codes::template Affine<2>>,
      .affine3 = multiply<typename Codes::template Affine<3>>,
      .affine4 = multiply<typename Codes::template Affine<4>>,
      .affine5 = multiply<typename Codes::template Affine<5>>,
      .affine6 = multiply<typename Codes::template Affine<6>>,
      .affine8 = multiply<typename Codes::template Affine<8>>,
      .bf16 = multiply<typename Codes::Bf16>,
      .f32 = multiply<typename Codes::F32>,
      .fp8 = multiply<typename Codes::Fp8>,
  };
};

}  // namespace
}  // namespace moeflux::vector
