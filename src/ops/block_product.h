#pragma once
// The product of a range of blocks of a matrix with rows: the unit into which CpuOps splits its products.
//
// Affine matrices are multiplied in integers if x has been quantized to bytes; everything else is multiplied
// in floats. Refers to its matrix and x. Immutable, thread-safe.

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/overloaded.h"
#include "kernels/kernel_table.h"
#include "ops/ops.h"

namespace moeflux {

inline std::uint64_t blocks_of(std::uint64_t rows) { return divide_up(rows, tile16::kBlockRows); }

// The kernel of `kernels` (MatmulKernels or TransposedKernels) for a matrix.
template <class Kernels>
auto kernel_of(const Kernels& kernels, const Encoding& encoding) {
  return std::visit(
      overloaded{
          [&](const PlainFormat& plain) { return plain.dtype == Dtype::bf16 ? kernels.bf16 : kernels.f32; },
          [&](const AffineFormat& affine) { return affine_kernel(kernels, affine.bits); },
          [&](const Fp8BlockFormat&) { return kernels.fp8; },
      },
      encoding);
}

// The properties of the processor that products depend on.
struct Processor {
  const KernelTable& kernels;
  bool wants_prefetch = false;
};

class BlockProduct {
 public:
  // `rows`: indices of rows of x; empty: all of them.
  BlockProduct(const Processor& processor, const TiledMatrix& w, const Input& x,
               std::span<const std::uint32_t> rows = {}, Rounding rounding = Rounding::coarse)
      : rows_(w.rows) {
    const auto* affine = std::get_if<AffineFormat>(&w.encoding);
    if (affine != nullptr && x.bytes.codes != nullptr) {
      MF_REQUIRE(rounding == Rounding::coarse || x.bytes.fine != nullptr,
                 "rows are prepared as they are used");
      int8_ = affine_kernel(*processor.kernels.int8, affine->bits);
      describe(int8_args_, w, affine, rows, x.x.count);
      int8_args_.prefetch = processor.wants_prefetch;
      int8_args_.x = x.bytes.codes;
      int8_args_.x_stride = x.bytes.stride;
      int8_args_.scales = x.bytes.scales.data;
      int8_args_.scales_stride = x.bytes.scales.stride;
      int8_args_.sums = x.bytes.sums.data;
      int8_args_.sums_stride = x.bytes.sums.stride;
      if (rounding == Rounding::coarse) return;
      int8_args_.fine = x.bytes.fine;
      int8_args_.fine_sums = x.bytes.fine_sums.data;
      return;
    }
    kernel_ = kernel_of(*processor.kernels.matmul, w.encoding);
    describe(args_, w, affine, rows, x.x.count);
    args_.x = x.x.data;
    args_.x_stride = x.x.stride;
    args_.sums = x.sums.data;
    args_.sums_stride = x.sums.stride;
  }

  // Computes blocks [first, end) into y: [batch][block_stride (end - first)], block after block.
  void run(std::uint64_t first, std::uint64_t end, float* y, std::uint64_t y_stride,
           std::uint32_t block_stride = tile16::kBlockRows) const {
    if (int8_ != nullptr)
      run_part(int8_, int8_args_, first, end, y, y_stride, block_stride);
    else
      run_part(kernel_, args_, first, end, y, y_stride, block_stride);
  }

 private:
  template <class Args>
  static void describe(Args& args, const TiledMatrix& w, const AffineFormat* affine,
                       std::span<const std::uint32_t> rows, std::uint32_t count) {
    args.blocks = w.first_block;
    args.block_stride = w.block_stride;
    args.cols = static_cast<std::uint32_t>(w.cols);
    if (affine != nullptr) {
      args.group = affine->group;
      args.f32_scales = affine->scale_dtype == Dtype::f32;
    }
    args.x_rows = rows.empty() ? nullptr : rows.data();
    args.batch = rows.empty() ? count : static_cast<std::uint32_t>(rows.size());
  }

  template <class Kernel, class Args>
  void run_part(Kernel kernel, const Args& args, std::uint64_t first, std::uint64_t end, float* y,
                std::uint64_t y_stride, std::uint32_t block_stride) const {
    Args some = args;
    some.blocks += first * args.block_stride;
    some.block_count = static_cast<std::uint32_t>(end - first);
    const std::uint64_t end_row = std::min(rows_, end * tile16::kBlockRows);
    some.last_block_rows = static_cast<std::uint32_t>(end_row - (end - 1) * tile16::kBlockRows);
    some.y = y;
    some.y_stride = y_stride;
    some.y_block_stride = block_stride;
    kernel(some);
  }

  MatmulKernel kernel_ = nullptr;
  Int8Kernel int8_ = nullptr;
  MatmulArgs args_;  // for the whole matrix
  Int8Args int8_args_;
  std::uint64_t rows_;
};

}  // namespace moeflux
