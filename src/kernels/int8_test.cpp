#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
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

constexpr std::array kBatches = {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 15u, 17u, 65u};

// Rows quantized by a kernel of `table`. Gaps between the rows keep a canary.
struct QuantizedRows {
  static constexpr std::int8_t kCanary = -128;  // not a code
  std::size_t stride;
  std::vector<std::int8_t> codes, fine;
  Grid scales, sums, fine_sums;

  QuantizedRows(const KernelTable& table, const Grid& x, std::size_t gap, bool with_fine = true)
      : stride(x.cols() + gap),
        codes(x.rows() * stride + 64, kCanary),
        fine(codes),
        scales(x.rows(), divide_up<std::size_t>(x.cols(), kInt8Group), gap),
        sums(x.rows(), x.cols() / kSumCols, gap),
        fine_sums(sums) {
    for (std::size_t row = 0; row < x.rows(); ++row) {
      ByteRow to{codes.data() + row * stride, scales.row(row), sums.row(row)};
      if (with_fine) {
        to.fine = fine.data() + row * stride;
        to.fine_sums = fine_sums.row(row);
      }
      table.int8->quantize(x.row(row), static_cast<std::uint32_t>(x.cols()), to);
    }
  }
};

using Int8OnEveryIsa = OnEveryIsa;
INSTANTIATE_TEST_SUITE_P(, Int8OnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

TEST_P(Int8OnEveryIsa, QuantizesAsScalarDoes) {
  Random random(1);
  for (const Numbers kind : {Numbers::plain, Numbers::extreme, Numbers::non_finite})
    for (const std::size_t cols : {32u, 64u, 96u, 128u, 160u, 2048u})
      for (int round = 0; round < 20; ++round) {
        const Grid x = Grid::random(random, 3, cols, 5, kind);
        const bool fine = round % 2 == 0;
        const QuantizedRows found(*GetParam(), x, 7, fine), expected(scalar(), x, 7, fine);
        EXPECT_EQ(found.codes, expected.codes) << cols;
        EXPECT_EQ(found.fine, expected.fine) << cols;
        EXPECT_TRUE(same_bits(found.fine_sums, expected.fine_sums)) << cols;
        EXPECT_TRUE(same_bits(found.scales, expected.scales)) << cols;
        EXPECT_TRUE(same_bits(found.sums, expected.sums)) << cols;
      }
}

TEST(Int8Quantization, RoundsToTheNearestCode) {
  Random random(2);
  const Grid x = Grid::random(random, 40, 192);
  const QuantizedRows rows(scalar(), x, 0);
  for (std::size_t row = 0; row < x.rows(); ++row)
    for (std::size_t group = 0; group < 3; ++group) {
      const float* const numbers = x.row(row) + 64 * group;
      float largest = 0;
      for (int i = 0; i < 64; ++i) largest = std::max(largest, std::fabs(numbers[i]));
      const float scale = rows.scales.row(row)[group];
      EXPECT_EQ(scale, largest / 127.0f);
      float sums[2] = {}, fine_sums[2] = {};
      for (int i = 0; i < 64; ++i) {
        const int code = rows.codes[row * rows.stride + 64 * group + static_cast<std::size_t>(i)];
        EXPECT_GE(code, -127);
        EXPECT_NEAR(numbers[i], scale * static_cast<float>(code), 0.5001f * scale);
        const int fine = rows.fine[row * rows.stride + 64 * group + static_cast<std::size_t>(i)];
        EXPECT_GE(fine, -127);
        EXPECT_NEAR(numbers[i], scale * (static_cast<float>(code) + static_cast<float>(fine) / 254),
                    0.0025f * scale);
        fine_sums[i / 32] += static_cast<float>(fine);
        sums[i / 32] += static_cast<float>(code);
      }
      EXPECT_EQ(rows.sums.row(row)[2 * group], sums[0]);
      EXPECT_EQ(rows.sums.row(row)[2 * group + 1], sums[1]);
      EXPECT_EQ(rows.fine_sums.row(row)[2 * group], fine_sums[0]);
      EXPECT_EQ(rows.fine_sums.row(row)[2 * group + 1], fine_sums[1]);
    }
}

TEST(Int8Quantization, RoundsTiesToEven) {
  Grid x(1, 32);
  std::fill_n(x.row(0), 32, 0.0f);
  x.row(0)[0] = 127;  // makes the scale 1
  x.row(0)[1] = 0.5f;
  x.row(0)[2] = 1.5f;
  x.row(0)[3] = -2.5f;
  const QuantizedRows rows(scalar(), x, 0);
  EXPECT_EQ(rows.scales.row(0)[0], 1.0f);
  EXPECT_EQ(std::vector<std::int8_t>(rows.codes.begin(), rows.codes.begin() + 5),
            (std::vector<std::int8_t>{127, 0, 2, -2, 0}));
}

TEST(Int8Quantization, HandlesTinyAndNonFiniteGroups) {
  Grid x(1, 192);
  std::fill_n(x.row(0), 192, 0.0f);
  x.row(0)[3] = 1e-38f;  // below kMinCoded
  x.row(0)[64] = std::numeric_limits<float>::infinity();
  x.row(0)[130] = std::numeric_limits<float>::quiet_NaN();
  x.row(0)[131] = 5;
  const QuantizedRows rows(scalar(), x, 0);
  EXPECT_EQ(rows.scales.row(0)[0], 0.0f);
  EXPECT_TRUE(std::isnan(rows.scales.row(0)[1]));
  EXPECT_TRUE(std::isnan(rows.scales.row(0)[2]));
  EXPECT_TRUE(
      std::all_of(rows.codes.begin(), rows.codes.begin() + 192, [](std::int8_t code) { return code == 0; }));
}

struct Layout {
  std::size_t gap = 0, block_gap = 0;
  bool chosen_rows = false;  // leave out some rows of x and repeat others
};

// A matrix, rows of bytes to multiply it with, and the arguments of a kernel.
class Product {
 public:
  Product(const RandomMatrix& matrix, std::uint32_t batch, Random& random, Layout layout = {},
          Numbers kind = Numbers::plain)
      : view_(matrix.view()),
        affine_(std::get<AffineFormat>(view_.encoding)),
        batch_(batch),
        layout_(layout),
        block_stride_(tile16::block_bytes(view_.encoding, view_.cols) + layout.block_gap),
        numbers_(Grid::random(random, layout.chosen_rows ? batch + 2 : batch, view_.cols, 0, kind)),
        x_(scalar(), numbers_, layout.gap),
        blocks_(blocks() * block_stride_ - layout.block_gap, std::byte{0xff}) {
    matrix.write_tiles(blocks_.data(), block_stride_);
    for (std::uint32_t i = 0; i < batch; ++i)
      x_rows_.push_back(layout.chosen_rows ? (i * 5 + 1) % (batch + 2) : i);
  }

  Grid run(const KernelTable& table, bool fine = false, bool prefetch = false) const {
    Grid y(batch_, view_.rows, layout_.gap);
    Int8Args args;
    args.blocks = blocks_.data();
    args.block_stride = block_stride_;
    args.block_count = static_cast<std::uint32_t>(blocks());
    args.last_block_rows = static_cast<std::uint32_t>(view_.rows - 16 * (blocks() - 1));
    args.cols = static_cast<std::uint32_t>(view_.cols);
    args.group = affine_.group;
    args.f32_scales = affine_.scale_dtype == Dtype::f32;
    args.x = x_.codes.data();
    args.x_stride = x_.stride;
    args.scales = x_.scales.data();
    args.scales_stride = x_.scales.stride();
    args.sums = x_.sums.data();
    args.sums_stride = x_.sums.stride();
    if (fine) {
      args.fine = x_.fine.data();
      args.fine_sums = x_.fine_sums.data();
    }
    args.x_rows = layout_.chosen_rows ? x_rows_.data() : nullptr;
    args.batch = batch_;
    args.prefetch = prefetch;
    args.y = y.data();
    args.y_stride = y.stride();
    affine_kernel(*table.int8, affine_.bits)(args);
    return y;
  }

  void set_code(std::size_t i, std::int8_t code) { x_.codes[i] = x_.fine[i] = code; }
  QuantizedRows& x() { return x_; }
  std::byte* blocks_begin() { return blocks_.data(); }
  const float* numbers(std::uint32_t i) const { return numbers_.row(x_rows_[i]); }
  tile16::TiledMatrix tiled() const {
    return {view_.rows, view_.cols, view_.encoding, blocks_.data(), block_stride_};
  }

 private:
  std::size_t blocks() const { return divide_up(view_.rows, tile16::kBlockRows); }

  MatrixView view_;
  AffineFormat affine_;
  std::uint32_t batch_;
  Layout layout_;
  std::uint64_t block_stride_;
  Grid numbers_;
  QuantizedRows x_;
  std::vector<std::byte> blocks_;
  std::vector<std::uint32_t> x_rows_;
};

TEST_P(Int8OnEveryIsa, MultipliesAsScalarDoes) {
  Random random(3);
  for (const std::uint32_t bits : kBits)
    for (const std::uint32_t group : {32u, 64u, 128u})
      for (const Dtype scales : {Dtype::bf16, Dtype::f32})
        for (const std::uint32_t batch : kBatches) {
          const std::uint64_t rows = batch % 2 == 0 ? 32 : 37, cols = group * (1 + batch % 3);
          const RandomMatrix matrix(rows, cols, AffineFormat{bits, group, scales}, random);
          const Layout layout =
              batch % 3 == 0 ? Layout{.gap = 5, .block_gap = 576, .chosen_rows = true} : Layout{};
          const Product product(matrix, batch, random, layout,
                                batch == 5 ? Numbers::non_finite : Numbers::plain);
          for (const bool fine : {false, true})
            for (const bool prefetch : {false, true})
              ASSERT_TRUE(same_bits(product.run(*GetParam(), fine, prefetch), product.run(scalar(), fine)))
                  << bits << " bits, groups of " << group << ", " << rows << " x " << cols << ", batch "
                  << batch << (fine ? ", fine" : "") << (prefetch ? ", prefetching" : "");
        }
}

// The largest codes with the largest bytes, where sums of pairs in 16 bits would saturate.
TEST_P(Int8OnEveryIsa, DoesNotSaturate) {
  Random random(4);
  for (const std::uint32_t bits : kBits) {
    const RandomMatrix matrix(16, 64, AffineFormat{bits, 64, Dtype::f32}, random);
    Product product(matrix, 1, random);
    std::memset(product.blocks_begin(), 0xff, 16 * 64 * bits / 8);  // codes only
    for (std::size_t k = 0; k < 64; ++k) product.set_code(k, k % 16 < 8 ? 127 : -127);
    ASSERT_TRUE(same_bits(product.run(*GetParam()), product.run(scalar()))) << bits << " bits, both signs";
    for (std::size_t k = 0; k < 64; ++k) product.set_code(k, 127);
    for (const bool fine : {false, true})
      ASSERT_TRUE(same_bits(product.run(*GetParam(), fine), product.run(scalar(), fine))) << bits << " bits";
  }
}

// Compared with double precision: quantization loses at most half a step per number.
TEST(Int8Products, AreCloseToDouble) {
  Random random(5);
  for (const std::uint32_t bits : kBits)
    for (const std::uint32_t group : {32u, 64u, 128u}) {
      const RandomMatrix matrix(20, 384, AffineFormat{bits, group, Dtype::bf16}, random);
      const Product product(matrix, 3, random);
      const Grid y = product.run(scalar()), fine = product.run(scalar(), true);
      std::vector<float> w(384);
      for (std::uint64_t row = 0; row < 20; ++row) {
        tile16::decode_row(product.tiled(), row, w);
        for (std::uint32_t i = 0; i < 3; ++i) {
          double exact = 0, slack = 0;
          for (std::size_t k = 0; k < 384; ++k) {
            exact += double{w[k]} * product.numbers(i)[k];
            slack += std::fabs(double{w[k]}) * 2.0 / 127 * 0.51;
          }
          EXPECT_NEAR(y.row(i)[row], exact, slack + 1e-3) << bits << " bits, groups of " << group;
          EXPECT_NEAR(fine.row(i)[row], exact, slack / 200 + 1e-3) << bits << " bits, groups of " << group;
        }
      }
    }
}

}  // namespace
}  // namespace moeflux
