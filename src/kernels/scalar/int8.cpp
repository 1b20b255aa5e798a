// The specification of integer products, in plain loops.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/law.h"
#include "kernels/scalar_tables.h"
#include "quant/tile16_layout.h"

namespace moeflux {
namespace {

using tile16::kBlockRows;
using tile16::kLaneBytes;

// One output. lane: the row's lane of the first unit of its block; x_row: row of x, its scales and its sums.
template <std::uint32_t Bits>
float product(const Int8Args& args, const std::byte* lane, std::uint64_t x_row) {
  const AffineFormat format{Bits, args.group, args.f32_scales ? Dtype::f32 : Dtype::bf16};
  const std::uint32_t cell = std::min(args.group, kInt8Group);
  const std::int8_t* x = args.x + x_row * args.x_stride;
  const float* scales = args.scales + x_row * args.scales_stride;
  const float* sums = args.sums + x_row * args.sums_stride;
  const std::int8_t* fine = args.fine != nullptr ? args.fine + x_row * args.x_stride : nullptr;
  const float* fine_sums = fine != nullptr ? args.fine_sums + x_row * args.sums_stride : nullptr;
  float acc = 0;
  for (std::uint32_t group = 0; group < args.cols; group += args.group) {
    const auto [scale, bias] = tile16::scale_and_bias(lane + tile16::codes_bytes(format), format);
    for (std::uint32_t first = group; first < group + args.group; first += cell) {
      std::int32_t dot = 0;
      for (std::uint32_t k = first; k < first + cell; ++k)
        dot += static_cast<std::int32_t>(tile16::code_at(lane, format, k - group)) *
               (fine == nullptr ? x[k] : kFineSteps * x[k] + fine[k]);
      float sum = 0;
      for (std::uint32_t part = first / kSumCols; part < (first + cell) / kSumCols; ++part)
        sum = sum +
              (fine == nullptr ? sums[part] : static_cast<float>(kFineSteps) * sums[part] + fine_sums[part]);
      const float inner = std::fma(bias, sum, scale * static_cast<float>(dot));
      const float x_scale = scales[first / kInt8Group];
      acc =
          std::fma(fine == nullptr ? x_scale : x_scale * (1.0f / static_cast<float>(kFineSteps)), inner, acc);
    }
    lane += tile16::group_bytes(format);
  }
  return acc;
}

template <std::uint32_t Bits>
void multiply(const Int8Args& args) noexcept {
  for (std::uint64_t i = 0; i < args.batch; ++i) {
    const std::uint64_t x_row = args.x_rows != nullptr ? args.x_rows[i] : i;
    for (std::uint64_t block = 0; block < args.block_count; ++block) {
      const std::uint64_t rows = block + 1 == args.block_count ? args.last_block_rows : kBlockRows;
      for (std::uint64_t row = 0; row < rows; ++row) {
        const std::byte* lane = args.blocks + block * args.block_stride + row * kLaneBytes;
        args.y[i * args.y_stride + block * args.y_block_stride + row] = product<Bits>(args, lane, x_row);
      }
    }
  }
}

void quantize(const float* x, std::uint32_t n, const ByteRow& to) noexcept {
  for (std::uint32_t first = 0; first < n; first += kInt8Group) {
    const std::uint32_t end = std::min(n, first + kInt8Group);
    const auto [scale, inverse] = law::code_scale(x + first, end - first, law::kMaxByteCode);
    to.scales[first / kInt8Group] = scale;
    for (std::uint32_t part = first; part < end; part += kSumCols) {
      std::int32_t sum = 0, fine_sum = 0;
      for (std::uint32_t i = part; i < part + kSumCols; ++i) {
        const float steps = inverse != 0 ? x[i] * inverse : 0.0f;
        const float code = std::rint(steps);
        to.codes[i] = static_cast<std::int8_t>(code);
        sum += to.codes[i];
        if (to.fine == nullptr) continue;
        to.fine[i] = static_cast<std::int8_t>(std::rint((steps - code) * static_cast<float>(kFineSteps)));
        fine_sum += to.fine[i];
      }
      to.sums[part / kSumCols] = static_cast<float>(sum);
      if (to.fine != nullptr) to.fine_sums[part / kSumCols] = static_cast<float>(fine_sum);
    }
  }
}

std::uint64_t saturate(std::uint64_t rounds) noexcept {
  volatile std::uint8_t code = 3;
  volatile std::int8_t x = 1;
  std::int32_t sum = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) sum += code * x;
  volatile const std::int32_t sink = sum;
  (void)sink;
  return rounds;
}

}  // namespace

const Int8Kernels kScalarInt8 = {
    .affine2 = multiply<2>,
    .affine3 = multiply<3>,
    .affine4 = multiply<4>,
    .affine5 = multiply<5>,
    .affine6 = multiply<6>,
    .affine8 = multiply<8>,
    .quantize = quantize,
    .saturate = saturate,
};

}  // namespace moeflux
