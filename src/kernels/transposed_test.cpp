#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/arithmetic.h"
#include "kernels/kernel_table.h"
#include "kernels/testing/grid.h"
#include "quant/testing/random_matrix.h"

namespace moeflux {
namespace {

using test::Grid;
using test::kBits;
using test::Numbers;
using test::OnEveryIsa;
using test::Random;
using test::same_bits;
using test::scalar;

std::vector<Encoding> all_encodings() {
  std::vector<Encoding> all = {PlainFormat{Dtype::bf16}, PlainFormat{Dtype::f32}, Fp8BlockFormat{Dtype::f32}};
  for (const std::uint32_t bits : kBits)
    for (const std::uint32_t group : {32u, 64u, 128u})
      for (const Dtype scales : {Dtype::bf16, Dtype::f32})
        all.emplace_back(AffineFormat{bits, group, scales});
  return all;
}

TransposedKernel kernel_for(const TransposedKernels& kernels, const Encoding& encoding) {
  if (std::holds_alternative<Fp8BlockFormat>(encoding)) return kernels.fp8;
  if (const auto* plain = std::get_if<PlainFormat>(&encoding))
    return plain->dtype == Dtype::bf16 ? kernels.bf16 : kernels.f32;
  return affine_kernel(kernels, std::get<AffineFormat>(encoding).bits);
}

// A matrix, its tiles with gaps between the blocks, and rows to multiply it with.
struct TransposedProduct {
  TransposedProduct(const RandomMatrix& matrix, std::uint32_t batch, Random& random,
                    Numbers kind = Numbers::plain)
      : view(matrix.view()),
        block_stride(tile16::block_bytes(view.encoding, view.cols) + 576),
        x(Grid::random(random, batch, view.rows, 3, kind)),
        blocks(block_count() * block_stride, std::byte{0xff}) {
    matrix.write_tiles(blocks.data(), block_stride);
  }

  std::size_t block_count() const { return divide_up(view.rows, tile16::kBlockRows); }
  std::uint32_t last_block_rows() const {
    return static_cast<std::uint32_t>(view.rows - tile16::kBlockRows * (block_count() - 1));
  }

  Grid run(const KernelTable& table) const { return run(table, 0, static_cast<std::uint32_t>(x.rows())); }
  Grid run(const KernelTable& table, std::uint32_t first, std::uint32_t count) const {
    Grid y(count, view.cols, 5);
    TransposedArgs args;
    args.blocks = blocks.data();
    args.block_stride = block_stride;
    args.block_count = static_cast<std::uint32_t>(block_count());
    args.last_block_rows = last_block_rows();
    args.cols = static_cast<std::uint32_t>(view.cols);
    if (const auto* affine = std::get_if<AffineFormat>(&view.encoding)) {
      args.group = affine->group;
      args.f32_scales = affine->scale_dtype == Dtype::f32;
    }
    args.x = x.row(first);
    args.x_stride = x.stride();
    args.batch = count;
    args.y = y.data();
    args.y_stride = y.stride();
    kernel_for(*table.transposed, view.encoding)(args);
    EXPECT_TRUE(y.intact());
    return y;
  }

  tile16::TiledMatrix tiled() const {
    return {view.rows, view.cols, view.encoding, blocks.data(), block_stride};
  }

  MatrixView view;
  std::uint64_t block_stride;
  Grid x;
  std::vector<std::byte> blocks;
};

using TransposedOnEveryIsa = OnEveryIsa;
INSTANTIATE_TEST_SUITE_P(, TransposedOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

std::string describe(const Encoding& encoding, std::uint64_t rows, std::uint64_t cols, std::size_t batch) {
  return moeflux::describe(encoding) + ", " + std::to_string(rows) + " x " + std::to_string(cols) +
         ", batch " + std::to_string(batch);
}

TEST_P(TransposedOnEveryIsa, MatchesScalarForEveryEncodingAndSize) {
  Random random(1);
  std::uint32_t turn = 0;
  for (const Encoding& encoding : all_encodings())
    for (const std::uint64_t rows : {1u, 15u, 16u, 17u, 40u, 128u}) {
      const auto* affine = std::get_if<AffineFormat>(&encoding);
      const std::uint64_t cols = affine != nullptr ? affine->group * (1 + turn % 3) : 61 + 7 * (turn % 23);
      const std::uint32_t batch = 1 + turn++ % 5;
      const RandomMatrix matrix(rows, cols, encoding, random);
      const TransposedProduct product(matrix, batch, random);
      ASSERT_TRUE(same_bits(product.run(*GetParam()), product.run(scalar())))
          << describe(encoding, rows, cols, batch);
    }
}

TEST_P(TransposedOnEveryIsa, GivesARowTheSameBitsInEveryBatch) {
  Random random(2);
  for (const Encoding& encoding : all_encodings()) {
    const RandomMatrix matrix(48, 128, encoding, random);
    const TransposedProduct product(matrix, 9, random);
    const Grid all = product.run(*GetParam());
    for (std::uint32_t row = 0; row < 9; ++row) {
      const Grid one = product.run(*GetParam(), row, 1);
      ASSERT_TRUE(std::equal(one.row(0), one.row(0) + 128, all.row(row)))
          << describe(encoding, 48, 128, 9) << ", row " << row;
    }
  }
}

TEST_P(TransposedOnEveryIsa, TreatsExtremeActivationsAsScalarDoes) {
  Random random(3);
  for (const Encoding& encoding : all_encodings()) {
    const RandomMatrix matrix(17, 128, encoding, random);
    for (const Numbers kind : {Numbers::extreme, Numbers::non_finite}) {
      const TransposedProduct product(matrix, 3, random, kind);
      ASSERT_TRUE(same_bits(product.run(*GetParam()), product.run(scalar())))
          << describe(encoding, 17, 128, 3);
    }
  }
}

// Arbitrary bytes, also in the rows that pad the last block.
TEST_P(TransposedOnEveryIsa, TreatsArbitraryBytesAsScalarDoes) {
  Random random(4);
  for (const Encoding& encoding : all_encodings())
    for (const std::uint64_t rows : {32u, 21u}) {
      const RandomMatrix matrix(rows, 256, encoding, random);
      TransposedProduct product(matrix, 3, random);
      std::ranges::generate(product.blocks, [&] { return static_cast<std::byte>(random()); });
      ASSERT_TRUE(same_bits(product.run(*GetParam()), product.run(scalar())))
          << describe(encoding, rows, 256, 3);
    }
}

// ---- The scalar kernels are the law: read once more, from the source's bytes -----------------------------

struct Weight {
  float number, scale, bias;  // scale and bias: 1 and 0 if the encoding has none
};

Weight weight_of(const MatrixView& view, std::uint64_t row, std::uint64_t col) {
  if (const auto* affine = std::get_if<AffineFormat>(&view.encoding)) {
    const std::uint64_t at = row * (view.cols / affine->group) + col / affine->group;
    return {static_cast<float>(affine_code(view, row, col)),
            load_float(view.scales.data(), at, affine->scale_dtype),
            load_float(view.biases.data(), at, affine->scale_dtype)};
  }
  if (const auto* plain = std::get_if<PlainFormat>(&view.encoding))
    return {load_float(view.codes.data(), row * view.cols + col, plain->dtype), 1, 0};
  return {float_from_e4m3(std::to_integer<std::uint8_t>(view.codes[row * view.cols + col])),
          load_float(view.scales.data(), row / 128 * divide_up<std::uint64_t>(view.cols, 128) + col / 128,
                     Dtype::f32),
          0};
}

// lane l and lane l + 8, then 4, 2, 1.
float folded(std::vector<float> lanes) {
  for (std::size_t half = 8; half != 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

float by_law(const MatrixView& view, std::uint64_t col, const float* x) {
  std::vector<float> products(16), biases(16);
  for (std::uint64_t row = 0; row < view.rows; ++row) {
    const Weight weight = weight_of(view, row, col);
    products[row % 16] = std::fma(weight.number, weight.scale * x[row], products[row % 16]);
    biases[row % 16] = std::fma(weight.bias, x[row], biases[row % 16]);
  }
  const bool has_bias = std::holds_alternative<AffineFormat>(view.encoding);
  return has_bias ? folded(products) + folded(biases) : folded(products);
}

TEST(ScalarTransposed, FollowsTheLawBitForBit) {
  Random random(5);
  for (const Encoding& encoding : all_encodings()) {
    const RandomMatrix matrix(37, 256, encoding, random);
    const TransposedProduct product(matrix, 2, random);
    const Grid y = product.run(scalar());
    for (std::uint32_t i = 0; i < 2; ++i)
      for (std::uint64_t col = 0; col < 256; ++col)
        ASSERT_EQ(y.row(i)[col], by_law(product.view, col, product.x.row(i)))
            << describe(encoding, 37, 256, 2) << ", column " << col;
  }
}

// The bound: u = 2^-24 for each of at most 37 / 16 + 1 roundings of a lane, 4 of its fold, 1 of scale x, 1 of
// adding the biases and 2 of decode_row(), times the sum of the magnitudes |code scale x| and |bias x|.
TEST(ScalarTransposed, IsTheProductOfDecodedNumbersWithinItsBound) {
  Random random(6);
  for (const Encoding& encoding : all_encodings()) {
    constexpr std::uint64_t kRows = 37, kCols = 128;
    const RandomMatrix matrix(kRows, kCols, encoding, random);
    const TransposedProduct product(matrix, 1, random);
    const Grid y = product.run(scalar());
    std::vector<double> exact(kCols), sizes(kCols);
    std::vector<float> numbers(kCols);
    for (std::uint64_t row = 0; row < kRows; ++row) {
      tile16::decode_row(product.tiled(), row, numbers);
      const double x = product.x.row(0)[row];
      for (std::uint64_t col = 0; col < kCols; ++col) {
        const Weight weight = weight_of(product.view, row, col);
        exact[col] += double{numbers[col]} * x;
        sizes[col] +=
            (std::fabs(double{weight.number} * double{weight.scale}) + std::fabs(weight.bias)) * std::fabs(x);
      }
    }
    for (std::uint64_t col = 0; col < kCols; ++col)
      ASSERT_NEAR(y.row(0)[col], exact[col], 1.01 * 11 * 0x1p-24 * sizes[col])
          << moeflux::describe(encoding) << ", column " << col;
  }
}

}  // namespace
}  // namespace moeflux
