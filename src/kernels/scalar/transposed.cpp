// The specification of the transposed products, in plain loops.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/law.h"
#include "kernels/scalar/encodings.h"
#include "kernels/scalar_tables.h"

namespace moeflux {
namespace {

using scalar::Affine;
using scalar::Bf16;
using scalar::F32;
using scalar::Fp8;
using scalar::Group;
using tile16::kBlockRows;
using tile16::kLaneBytes;

std::uint32_t rows_of(const TransposedArgs& args) {
  return static_cast<std::uint32_t>(kBlockRows) * (args.block_count - 1) + args.last_block_rows;
}

// The group of columns that begins at `first`, `offset` bytes into a block, in row `row`.
Group group_at(const TransposedArgs& args, std::uint32_t row, std::uint32_t first, std::uint32_t cols,
               std::uint64_t offset) {
  const std::byte* const block = args.blocks + row / kBlockRows * args.block_stride;
  return {block + offset + row % kBlockRows * kLaneBytes, first, cols};
}

// The sum of factor(row) over the rows.
template <class Factor>
float sum_over_rows(std::uint32_t rows, const Factor& add) {
  float lanes[law::kLanes] = {};
  for (std::uint32_t row = 0; row < rows; ++row)
    lanes[row % law::kLanes] = add(row, lanes[row % law::kLanes]);
  return law::fold_add(lanes);
}

// One output: column k of a group. group(row): the group in that row.
template <std::uint32_t Bits, class GroupOf>
float product(const Affine<Bits>& format, std::uint32_t rows, const float* x, std::uint32_t k,
              const GroupOf& group) {
  const float products = sum_over_rows(rows, [&](std::uint32_t row, float sum) {
    return std::fma(format.number(group(row), k), format.scales(group(row)).scale * x[row], sum);
  });
  return products + sum_over_rows(rows, [&](std::uint32_t row, float sum) {
           return std::fma(format.scales(group(row)).bias, x[row], sum);
         });
}
template <class Plain, class GroupOf>
float product(const Plain& format, std::uint32_t rows, const float* x, std::uint32_t k,
              const GroupOf& group) {
  return sum_over_rows(rows, [&](std::uint32_t row, float sum) {
    return std::fma(format.number(group(row), k), x[row], sum);
  });
}
template <class GroupOf>
float product(const Fp8& format, std::uint32_t rows, const float* x, std::uint32_t k, const GroupOf& group) {
  return sum_over_rows(rows, [&](std::uint32_t row, float sum) {
    return std::fma(format.number(group(row), k), format.scale(group(row)) * x[row], sum);
  });
}

template <class Format>
void multiply(const TransposedArgs& args) noexcept {
  const Format format(args);
  const std::uint32_t rows = rows_of(args);
  for (std::uint64_t i = 0; i < args.batch; ++i) {
    std::uint64_t offset = 0;
    for (std::uint32_t first = 0; first < args.cols; first += format.group_cols) {
      const std::uint32_t cols = std::min(format.group_cols, args.cols - first);
      const auto group = [&](std::uint32_t row) { return group_at(args, row, first, cols, offset); };
      for (std::uint32_t k = 0; k < cols; ++k)
        args.y[i * args.y_stride + first + k] = product(format, rows, args.x + i * args.x_stride, k, group);
      offset += format.group_bytes(group(0));
    }
  }
}

}  // namespace

const TransposedKernels kScalarTransposed = {
    .affine2 = multiply<Affine<2>>,
    .affine3 = multiply<Affine<3>>,
    .affine4 = multiply<Affine<4>>,
    .affine5 = multiply<Affine<5>>,
    .affine6 = multiply<Affine<6>>,
    .affine8 = multiply<Affine<8>>,
    .bf16 = multiply<Bf16>,
    .f32 = multiply<F32>,
    .fp8 = multiply<Fp8>,
};

}  // namespace moeflux
