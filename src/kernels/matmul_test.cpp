#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
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

constexpr std::array kBatches = {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 17u, 30u};
constexpr AffineFormat kCommon{.bits = 4, .group = 64, .scale_dtype = Dtype::bf16};

std::vector<Encoding> affine_encodings() {
  std::vector<Encoding> all;
  for (const std::uint32_t bits : kBits)
    for (const std::uint32_t group : {32u, 64u, 128u})
      for (const Dtype scales : {Dtype::bf16, Dtype::f32})
        all.emplace_back(AffineFormat{bits, group, scales});
  return all;
}
std::vector<Encoding> other_encodings() {
  return {PlainFormat{Dtype::bf16}, PlainFormat{Dtype::f32}, Fp8BlockFormat{Dtype::f32}};
}

MatmulKernel kernel_for(const MatmulKernels& kernels, const Encoding& encoding) {
  if (std::holds_alternative<Fp8BlockFormat>(encoding)) return kernels.fp8;
  if (const auto* plain = std::get_if<PlainFormat>(&encoding))
    return plain->dtype == Dtype::bf16 ? kernels.bf16 : kernels.f32;
  return affine_kernel(kernels, std::get<AffineFormat>(encoding).bits);
}

// Memory layout of a product; by default without gaps.
struct Layout {
  std::size_t x_gap = 0, sums_gap = 0, y_gap = 0, block_gap = 0;
  bool chosen_rows = false;  // leave out some rows of x and repeat others
};
constexpr Layout kLoose{.x_gap = 3, .sums_gap = 1, .y_gap = 21, .block_gap = 576, .chosen_rows = true};

// A matrix, rows to multiply it with, and the arguments of a kernel.
class Product {
 public:
  Product(const RandomMatrix& matrix, std::uint32_t batch, Random& random, Layout layout = {},
          Numbers kind = Numbers::plain)
      : view_(matrix.view()),
        batch_(batch),
        layout_(layout),
        block_stride_(tile16::block_bytes(view_.encoding, view_.cols) + layout.block_gap),
        x_(Grid::random(random, layout.chosen_rows ? batch + 2 : batch, view_.cols, layout.x_gap, kind)),
        sums_(x_.rows(), view_.cols / kSumCols, layout.sums_gap),
        blocks_(blocks() * block_stride_ - layout.block_gap, std::byte{0xff}) {
    matrix.write_tiles(blocks_.data(), block_stride_);
    for (std::size_t row = 0; has_sums() && row < x_.rows(); ++row)
      scalar().matmul->sums(x_.row(row), static_cast<std::uint32_t>(view_.cols), sums_.row(row));
    for (std::uint32_t i = 0; i < batch; ++i)
      x_rows_.push_back(layout.chosen_rows ? (i * 5 + 1) % (batch + 2) : i);
  }

  Grid run(const KernelTable& table) const { return run(table, 0, batch_); }
  // Multiplies rows [first, first + count) of the batch in one call.
  Grid run(const KernelTable& table, std::uint32_t first, std::uint32_t count) const {
    Grid y(count, view_.rows, layout_.y_gap);
    MatmulArgs args;
    args.blocks = blocks_.data();
    args.block_stride = block_stride_;
    args.block_count = static_cast<std::uint32_t>(blocks());
    args.last_block_rows = static_cast<std::uint32_t>(view_.rows - 16 * (blocks() - 1));
    args.cols = static_cast<std::uint32_t>(view_.cols);
    if (const auto* affine = std::get_if<AffineFormat>(&view_.encoding)) {
      args.group = affine->group;
      args.f32_scales = affine->scale_dtype == Dtype::f32;
      args.sums = layout_.chosen_rows ? sums_.data() : sums_.row(first);
      args.sums_stride = sums_.stride();
    }
    args.x = layout_.chosen_rows ? x_.data() : x_.row(first);
    args.x_stride = x_.stride();
    args.x_rows = layout_.chosen_rows ? x_rows_.data() + first : nullptr;
    args.batch = count;
    args.y = y.data();
    args.y_stride = y.stride();
    kernel_for(*table.matmul, view_.encoding)(args);
    return y;
  }

  const float* x(std::uint32_t i) const { return x_.row(x_rows_[i]); }
  const float* sums(std::uint32_t i) const { return has_sums() ? sums_.row(x_rows_[i]) : nullptr; }
  std::byte* block(std::size_t index) { return blocks_.data() + index * block_stride_; }
  tile16::TiledMatrix tiled() const {
    return {view_.rows, view_.cols, view_.encoding, blocks_.data(), block_stride_};
  }

 private:
  bool has_sums() const { return std::holds_alternative<AffineFormat>(view_.encoding); }
  std::size_t blocks() const { return divide_up(view_.rows, tile16::kBlockRows); }

  MatrixView view_;
  std::uint32_t batch_;
  Layout layout_;
  std::uint64_t block_stride_;
  Grid x_, sums_;
  std::vector<std::byte> blocks_;
  std::vector<std::uint32_t> x_rows_;
};

using MatmulOnEveryIsa = OnEveryIsa;
INSTANTIATE_TEST_SUITE_P(, MatmulOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

std::string describe(const Encoding& encoding, std::uint64_t rows, std::uint64_t cols, std::uint32_t batch) {
  return moeflux::describe(encoding) + ", " + std::to_string(rows) + " x " + std::to_string(cols) +
         ", batch " + std::to_string(batch);
}

TEST_P(MatmulOnEveryIsa, MatchesScalarForEveryBatchOfTheCommonEncoding) {
  Random random(1);
  for (const std::uint64_t rows : {1u, 15u, 16u, 17u, 33u, 48u}) {
    const RandomMatrix matrix(rows, 192, kCommon, random);
    for (const std::uint32_t batch : kBatches)
      for (const Layout& layout : {Layout{}, kLoose}) {
        const Product product(matrix, batch, random, layout);
        ASSERT_TRUE(same_bits(product.run(*GetParam()), product.run(scalar())))
            << describe(kCommon, rows, 192, batch);
      }
  }
}

// Each encoding is tested with every number of rows, and all encodings together cover every batch for each of
// them.
TEST_P(MatmulOnEveryIsa, MatchesScalarForEveryAffineEncoding) {
  Random random(2);
  std::size_t turn = 0;
  for (const Encoding& encoding : affine_encodings())
    for (const std::uint64_t rows : {1u, 15u, 16u, 17u, 33u, 48u}) {
      const std::uint64_t cols = std::get<AffineFormat>(encoding).group * (1 + turn % 3);
      const std::uint32_t batch = kBatches[turn++ % kBatches.size()];
      const RandomMatrix matrix(rows, cols, encoding, random);
      const Product product(matrix, batch, random, turn % 2 == 0 ? Layout{} : kLoose);
      ASSERT_TRUE(same_bits(product.run(*GetParam()), product.run(scalar())))
          << describe(encoding, rows, cols, batch);
    }
}

TEST_P(MatmulOnEveryIsa, MatchesScalarForPlainAndFp8OfAnyWidth) {
  Random random(3);
  std::size_t turn = 0;
  for (const Encoding& encoding : other_encodings())
    for (const std::uint64_t cols : {1u, 2u, 3u, 4u, 5u, 63u, 64u, 65u, 127u, 128u, 129u, 130u, 192u})
      for (const std::uint64_t rows : {1u, 15u, 16u, 17u, 33u, 48u}) {
        const std::uint32_t batch = kBatches[turn++ % kBatches.size()];
        const RandomMatrix matrix(rows, cols, encoding, random);
        const Product product(matrix, batch, random, turn % 2 == 0 ? Layout{} : kLoose);
        ASSERT_TRUE(same_bits(product.run(*GetParam()), product.run(scalar())))
            << describe(encoding, rows, cols, batch);
      }
}

TEST_P(MatmulOnEveryIsa, MatchesScalarForLongRows) {
  Random random(4);
  std::vector<Encoding> encodings = other_encodings();
  encodings.emplace_back(kCommon);
  for (const Encoding& encoding : encodings) {
    const RandomMatrix matrix(3, 18432, encoding, random);
    for (const std::uint32_t batch : {1u, 3u}) {
      const Product product(matrix, batch, random);
      ASSERT_TRUE(same_bits(product.run(*GetParam()), product.run(scalar())))
          << describe(encoding, 3, 18432, batch);
    }
  }
}

// A result must not depend on the batch or on the row's place in it.
TEST_P(MatmulOnEveryIsa, GivesARowTheSameBitsInEveryBatch) {
  Random random(5);
  std::vector<Encoding> encodings = other_encodings();
  encodings.emplace_back(kCommon);
  for (const Encoding& encoding : encodings) {
    const RandomMatrix matrix(33, 192, encoding, random);
    const Product product(matrix, 30, random, kLoose);
    const Grid all = product.run(*GetParam());
    for (const std::uint32_t count : kBatches)
      for (std::uint32_t first = 0; first + count <= 30; first += 7) {
        const Grid some = product.run(*GetParam(), first, count);
        for (std::uint32_t i = 0; i < count; ++i)
          ASSERT_EQ(std::memcmp(some.row(i), all.row(first + i), 33 * sizeof(float)), 0)
              << describe(encoding, 33, 192, count) << ", row " << first + i << " of 30";
      }
  }
}

// Overflow, underflow and infinities in x may lead to NaN, but in the same places.
TEST_P(MatmulOnEveryIsa, TreatsExtremeActivationsAsScalarDoes) {
  Random random(6);
  std::vector<Encoding> encodings = affine_encodings();
  for (const Encoding& encoding : other_encodings()) encodings.push_back(encoding);
  for (const Encoding& encoding : encodings) {
    const RandomMatrix matrix(17, 128, encoding, random);
    for (const Numbers kind : {Numbers::extreme, Numbers::non_finite}) {
      const Product product(matrix, 5, random, kLoose, kind);
      ASSERT_TRUE(same_bits(product.run(*GetParam()), product.run(scalar())))
          << describe(encoding, 17, 128, 5);
    }
  }
}

// Arbitrary bytes: scales, biases and numbers that are subnormal, infinite or NaN, and all codes of e4m3.
TEST_P(MatmulOnEveryIsa, TreatsArbitraryBytesAsScalarDoes) {
  Random random(7);
  std::vector<Encoding> encodings = affine_encodings();
  for (const Encoding& encoding : other_encodings()) encodings.push_back(encoding);
  for (const Encoding& encoding : encodings) {
    const RandomMatrix matrix(32, 256, encoding, random);
    for (const std::uint32_t batch : {1u, 3u, 4u}) {
      Product product(matrix, batch, random);
      for (std::size_t block = 0; block < 2; ++block)
        std::generate_n(product.block(block), tile16::block_bytes(encoding, 256),
                        [&] { return static_cast<std::byte>(random()); });
      ASSERT_TRUE(same_bits(product.run(*GetParam()), product.run(scalar())))
          << describe(encoding, 32, 256, batch);
    }
  }
}

// A single NaN code makes the vector kernels decode its whole group in another way.
TEST_P(MatmulOnEveryIsa, DecodesEveryCodeOfE4m3WithAndWithoutNan) {
  Random random(8);
  const RandomMatrix matrix(16, 128, Fp8BlockFormat{Dtype::f32}, random);
  for (const std::uint32_t sign : {0x00u, 0x80u})
    for (const bool with_nan : {false, true}) {
      Product product(matrix, 1, random);
      for (std::uint32_t col = 0; col < 128; ++col)
        for (std::uint32_t row = 0; row < 16; ++row) {
          std::uint32_t magnitude = (col + row) % 128;
          if (magnitude == 0x7f && !(with_nan && row == 3)) magnitude = 0;
          product.block(0)[col / 4 * 64 + row * 4 + col % 4] = static_cast<std::byte>(sign | magnitude);
        }
      const Grid found = product.run(*GetParam());
      EXPECT_TRUE(same_bits(found, product.run(scalar())));
      for (std::uint32_t row = 0; row < 16; ++row)
        EXPECT_EQ(std::isnan(found.row(0)[row]), with_nan && row == 3) << "row " << row;
    }
}

TEST_P(MatmulOnEveryIsa, SumsThirtyTwoColumnsAsScalarDoes) {
  Random random(9);
  for (const std::uint32_t n : {32u, 64u, 96u, 4096u})
    for (const Numbers kind : {Numbers::plain, Numbers::extreme, Numbers::non_finite}) {
      const Grid x = Grid::random(random, 1, n, 0, kind);
      Grid found(1, n / kSumCols), expected(1, n / kSumCols);
      GetParam()->matmul->sums(x.data(), n, found.data());
      scalar().matmul->sums(x.data(), n, expected.data());
      EXPECT_TRUE(same_bits(found, expected)) << n << " columns";
    }
}

TEST(MatmulSums, AreFoldedOverSixteenLanes) {
  // Lanes 0 and 8 are added first: 2^24 + 1 is rounded there, and -2^24 from lane 4 comes later.
  std::vector<float> x(32);
  x[0] = 0x1p24f;
  x[8 + 16] = 1;
  x[4] = -0x1p24f;
  float sum = -1;
  scalar().matmul->sums(x.data(), 32, &sum);
  EXPECT_EQ(sum, 0.0f);
  // The same numbers in lanes 0, 4 and 1: the two large ones are added before the 1.
  std::swap(x[8 + 16], x[1]);
  scalar().matmul->sums(x.data(), 32, &sum);
  EXPECT_EQ(sum, 1.0f);
}

// ---- The scalar kernels are the law: read once more, from the source's bytes -----------------------------

float number_of(const MatrixView& view, std::uint64_t row, std::uint64_t col) {
  if (std::holds_alternative<AffineFormat>(view.encoding))
    return static_cast<float>(affine_code(view, row, col));
  if (const auto* plain = std::get_if<PlainFormat>(&view.encoding))
    return load_float(view.codes.data(), row * view.cols + col, plain->dtype);
  return float_from_e4m3(std::to_integer<std::uint8_t>(view.codes[row * view.cols + col]));
}

std::uint64_t group_of(const Encoding& encoding) {
  if (const auto* affine = std::get_if<AffineFormat>(&encoding)) return affine->group;
  return std::holds_alternative<PlainFormat>(encoding) ? 64 : 128;
}

float by_law(const MatrixView& view, std::uint64_t row, const float* x, const float* sums) {
  const std::uint64_t group = group_of(view.encoding), groups = divide_up(view.cols, group);
  float acc = 0;
  for (std::uint64_t g = 0; g < groups; ++g) {
    float c[4] = {0, 0, 0, 0};
    for (std::uint64_t k = 0; k < group && g * group + k < view.cols; ++k)
      c[k % 4] = std::fma(number_of(view, row, g * group + k), x[g * group + k], c[k % 4]);
    const float s = (c[0] + c[1]) + (c[2] + c[3]);
    if (const auto* affine = std::get_if<AffineFormat>(&view.encoding)) {
      float sum_of_x = sums[g * (group / 32)];
      for (std::uint64_t part = 1; part < group / 32; ++part) sum_of_x += sums[g * (group / 32) + part];
      acc = std::fma(load_float(view.scales.data(), row * groups + g, affine->scale_dtype), s, acc);
      acc = std::fma(load_float(view.biases.data(), row * groups + g, affine->scale_dtype), sum_of_x, acc);
    } else if (std::holds_alternative<PlainFormat>(view.encoding)) {
      acc = acc + s;
    } else {
      acc = std::fma(load_float(view.scales.data(), row / 128 * groups + g, Dtype::f32), s, acc);
    }
  }
  return acc;
}

TEST(ScalarMatmul, FollowsTheLawBitForBit) {
  Random random(10);
  std::vector<Encoding> encodings = affine_encodings();
  for (const Encoding& encoding : other_encodings()) encodings.push_back(encoding);
  for (const Encoding& encoding : encodings)
    for (const std::uint64_t cols : {128u, 384u, 131u}) {
      if (cols == 131 && std::holds_alternative<AffineFormat>(encoding)) continue;
      const RandomMatrix matrix(18, cols, encoding, random);
      const Product product(matrix, 2, random, kLoose);
      const Grid y = product.run(scalar());
      ASSERT_TRUE(y.intact());
      for (std::uint32_t i = 0; i < 2; ++i)
        for (std::uint64_t row = 0; row < 18; ++row)
          ASSERT_EQ(y.row(i)[row], by_law(matrix.view(), row, product.x(i), product.sums(i)))
              << describe(encoding, 18, cols, 2) << ", row " << row;
    }
}

// The bound: M is the sum of the magnitudes of all products, |code scale x| and |bias x|, or |w x|; u =
// 2^-24. A product goes through at most group/4 roundings in its chain, 2 where chains are added, and 2 for
// each group from its own on; a sum of x through at most 8, or fewer if the group is narrower than 128
// columns. decode_row() itself rounds twice. Each rounding contributes at most u M; their interaction adds
// less than 1 %.
TEST(ScalarMatmul, IsTheProductOfDecodedNumbersWithinItsBound) {
  Random random(11);
  std::vector<Encoding> encodings = affine_encodings();
  for (const Encoding& encoding : other_encodings()) encodings.push_back(encoding);
  for (const Encoding& encoding : encodings) {
    constexpr std::uint64_t kRows = 17, kCols = 768;
    const RandomMatrix matrix(kRows, kCols, encoding, random);
    const MatrixView view = matrix.view();
    const Product product(matrix, 2, random);
    const Grid y = product.run(scalar());
    const std::uint64_t group = group_of(encoding);
    const double roundings = static_cast<double>(group / 4 + 2 + 2 * (kCols / group) + 8 + 2);
    std::vector<float> numbers(kCols);
    for (std::uint64_t row = 0; row < kRows; ++row) {
      tile16::decode_row(product.tiled(), row, numbers);
      for (std::uint32_t i = 0; i < 2; ++i) {
        double exact = 0, sizes = 0;
        for (std::uint64_t col = 0; col < kCols; ++col) {
          const double x = product.x(i)[col];
          exact += numbers[col] * x;
          double size = std::fabs(numbers[col]);
          if (const auto* affine = std::get_if<AffineFormat>(&encoding)) {
            const std::size_t at = row * (kCols / group) + col / group;
            const double scale = load_float(view.scales.data(), at, affine->scale_dtype);
            const double bias = load_float(view.biases.data(), at, affine->scale_dtype);
            size = std::fabs(affine_code(view, row, col) * scale) + std::fabs(bias);
          }
          sizes += size * std::fabs(x);
        }
        ASSERT_NEAR(y.row(i)[row], exact, 1.01 * roundings * 0x1p-24 * sizes)
            << moeflux::describe(encoding) << ", row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace moeflux
