// The specification of every matrix product, in plain loops.

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

// Adds the sum s of number * x over a group to acc; `sums` holds the sums of a row of x.
template <std::uint32_t Bits>
float add_group(const Affine<Bits>& format, float acc, float s, const Group& group, const float* sums) {
  const auto [scale, bias] = format.scales(group);
  const std::uint32_t begin = group.first / kSumCols, end = (group.first + group.cols) / kSumCols;
  float sum_of_x = sums[begin];
  for (std::uint32_t part = begin + 1; part < end; ++part) sum_of_x = sum_of_x + sums[part];
  return std::fma(bias, sum_of_x, std::fma(scale, s, acc));
}
float add_group(const Bf16& /*format*/, float acc, float s, const Group& /*group*/, const float* /*sums*/) {
  return acc + s;
}
float add_group(const F32& /*format*/, float acc, float s, const Group& /*group*/, const float* /*sums*/) {
  return acc + s;
}
float add_group(const Fp8& format, float acc, float s, const Group& group, const float* /*sums*/) {
  return std::fma(format.scale(group), s, acc);
}

// One output. lane: the row's lane of the first unit of its block.
template <class Format>
float product(const Format& format, const std::byte* lane, std::uint32_t cols, const float* x,
              const float* sums) {
  float acc = 0;
  for (std::uint32_t first = 0; first < cols; first += format.group_cols) {
    const Group group{lane, first, std::min(format.group_cols, cols - first)};
    float chain[4] = {};
    for (std::uint32_t k = 0; k < group.cols; ++k)
      chain[k % 4] = std::fma(format.number(group, k), x[first + k], chain[k % 4]);
    const float s = (chain[0] + chain[1]) + (chain[2] + chain[3]);
    acc = add_group(format, acc, s, group, sums);
    lane += format.group_bytes(group);
  }
  return acc;
}

template <class Format>
void multiply(const MatmulArgs& args) noexcept {
  const Format format(args);
  for (std::uint64_t i = 0; i < args.batch; ++i) {
    const std::uint64_t x_row = args.x_rows != nullptr ? args.x_rows[i] : i;
    const float* x = args.x + x_row * args.x_stride;
    const float* sums = args.sums != nullptr ? args.sums + x_row * args.sums_stride : nullptr;
    for (std::uint64_t block = 0; block < args.block_count; ++block) {
      const std::uint64_t rows = block + 1 == args.block_count ? args.last_block_rows : kBlockRows;
      for (std::uint64_t row = 0; row < rows; ++row) {
        const std::byte* lane = args.blocks + block * args.block_stride + row * kLaneBytes;
        args.y[i * args.y_stride + block * args.y_block_stride + row] =
            product(format, lane, args.cols, x, sums);
      }
    }
  }
}

void sums_of_32(const float* x, std::uint32_t n, float* sums) noexcept {
  for (std::uint64_t first = 0; first < n; first += kSumCols) {
    float lanes[law::kLanes] = {};
    for (std::uint64_t k = 0; k < kSumCols; ++k) {
      float& lane = lanes[k % law::kLanes];
      lane = lane + x[first + k];
    }
    sums[first / kSumCols] = law::fold_add(lanes);
  }
}

}  // namespace

const MatmulKernels kScalarMatmul = {
    .affine2 = multiply<Affine<2>>,
    .affine3 = multiply<Affine<3>>,
    .affine4 = multiply<Affine<4>>,
    .affine5 = multiply<Affine<5>>,
    .affine6 = multiply<Affine<6>>,
    .affine8 = multiply<Affine<8>>,
    .bf16 = multiply<Bf16>,
    .f32 = multiply<F32>,
    .fp8 = multiply<Fp8>,
    .sums = sums_of_32,
};

}  // namespace moeflux
