#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/scalar_tables.h"
#include "kernels/testing/grid.h"
#include "quant/kv_dtype.h"

namespace moeflux {
namespace {

using test::Attended;
using test::Grid;
using test::Numbers;
using test::Random;
using test::same_bits;

struct Shape {
  std::uint32_t key_dim, value_dim;
};

// Queries, and a block with as many positions as any query sees.
struct Block {
  Shape shape;
  std::vector<std::uint32_t> visible;
  Grid queries, keys, values;
  float scale;

  Block(Random& random, Shape dims, std::vector<std::uint32_t> seen, Numbers kind = Numbers::plain)
      : shape(dims),
        visible(std::move(seen)),
        queries(Grid::random(random, visible.size(), dims.key_dim, 3, kind)),
        keys(Grid::random(random, positions(), dims.key_dim, 1, kind)),
        values(Grid::random(random, positions(), dims.value_dim, 5, kind)),
        scale(1 / std::sqrt(static_cast<float>(dims.key_dim))) {}

  std::size_t positions() const { return *std::max_element(visible.begin(), visible.end()); }
};

// Attends with queries [first, first + count).
void attend(const AttentionKernels& kernels, const Block& block, std::size_t first, std::size_t count,
            Attended& result) {
  kernels.attend({.queries = block.queries.row(first),
                  .query_stride = block.queries.stride(),
                  .count = static_cast<std::uint32_t>(count),
                  .visible = block.visible.data() + first,
                  .keys = block.keys.data(),
                  .key_stride = block.keys.stride(),
                  .key_dim = block.shape.key_dim,
                  .values = block.values.data(),
                  .value_stride = block.values.stride(),
                  .value_dim = block.shape.value_dim,
                  .scale = block.scale,
                  .max = result.max.data() + first,
                  .sum = result.sum.data() + first,
                  .out = result.out.row(first),
                  .out_stride = result.out.stride()});
}

Attended attend(const AttentionKernels& kernels, const Block& block) {
  Attended result(block.visible.size(), block.shape.value_dim);
  attend(kernels, block, 0, block.visible.size(), result);
  return result;
}

std::vector<std::uint32_t> some_visible(Random& random, std::size_t queries) {
  std::vector<std::uint32_t> visible(queries);
  for (std::uint32_t& count : visible) count = static_cast<std::uint32_t>(1 + random() % kAttentionBlock);
  return visible;
}

class AttentionOnEveryIsa : public test::OnEveryIsa {};
INSTANTIATE_TEST_SUITE_P(, AttentionOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

TEST_P(AttentionOnEveryIsa, MatchesScalarForShapesOfModels) {
  Random random(1);
  for (const Shape shape : {Shape{256, 256}, Shape{192, 128}, Shape{576, 512}})
    for (const std::size_t queries : {1u, 8u}) {
      const Block block(random, shape, std::vector<std::uint32_t>(queries, kAttentionBlock));
      EXPECT_TRUE(same_bits(attend(*GetParam()->attention, block), attend(kScalarAttention, block)))
          << shape.key_dim << " and " << shape.value_dim << ", " << queries << " queries";
    }
}

TEST_P(AttentionOnEveryIsa, MatchesScalarForEveryWidth) {
  Random random(2);
  for (std::uint32_t dim = 1; dim <= 70; ++dim)
    for (const Numbers kind : {Numbers::plain, Numbers::extreme, Numbers::non_finite}) {
      const Block block(random, {dim, 71 - dim}, some_visible(random, 1 + dim % 9), kind);
      EXPECT_TRUE(same_bits(attend(*GetParam()->attention, block), attend(kScalarAttention, block)))
          << dim << " and " << 71 - dim;
    }
}

TEST_P(AttentionOnEveryIsa, MatchesScalarForEveryVisibleCount) {
  Random random(3);
  std::vector<std::uint32_t> visible;
  for (std::uint32_t count = 1; count <= kAttentionBlock; ++count) visible.push_back(count);
  const Block ascending(random, {19, 33}, visible);
  EXPECT_TRUE(same_bits(attend(*GetParam()->attention, ascending), attend(kScalarAttention, ascending)));
  std::shuffle(visible.begin(), visible.end(), random);
  const Block mixed(random, {19, 33}, visible);
  EXPECT_TRUE(same_bits(attend(*GetParam()->attention, mixed), attend(kScalarAttention, mixed)));
  for (const std::uint32_t count : visible) {
    const Block alone(random, {16, 16}, {count});
    EXPECT_TRUE(same_bits(attend(*GetParam()->attention, alone), attend(kScalarAttention, alone))) << count;
  }
}

TEST_P(AttentionOnEveryIsa, GivesAQueryTheSameBitsInEveryBatch) {
  const AttentionKernels& kernels = *GetParam()->attention;
  EXPECT_TRUE(rc::check([&kernels] {
    Random random(*rc::gen::arbitrary<std::uint32_t>());
    const Shape shape{*rc::gen::inRange(1u, 150u), *rc::gen::inRange(1u, 150u)};
    const std::size_t queries = *rc::gen::inRange(1u, 10u);
    const Block block(random, shape, some_visible(random, queries));
    Attended piecewise(queries, shape.value_dim);
    for (std::size_t first = 0, count = 0; first < queries; first += count) {
      count = *rc::gen::inRange<std::size_t>(1, queries - first + 1);
      attend(kernels, block, first, count, piecewise);
    }
    RC_ASSERT(same_bits(piecewise, attend(kernels, block)));
  }));
}

TEST_P(AttentionOnEveryIsa, DoesNotReadInvisibleKeysAndValues) {
  Random random(4);
  for (const std::uint32_t seen : {1u, 2u, 3u, 5u, 255u}) {
    // The address sanitizer watches the memory after these positions.
    const std::vector<float> keys(std::size_t{seen} * 7, 0.5f), values(std::size_t{seen} * 9, 0.25f);
    const Grid query = Grid::random(random, 1, 7);
    Attended result(1, 9);
    GetParam()->attention->attend({.queries = query.data(),
                                   .count = 1,
                                   .visible = &seen,
                                   .keys = keys.data(),
                                   .key_stride = 7,
                                   .key_dim = 7,
                                   .values = values.data(),
                                   .value_stride = 9,
                                   .value_dim = 9,
                                   .scale = 1,
                                   .max = result.max.data(),
                                   .sum = result.sum.data(),
                                   .out = result.out.data()});
    EXPECT_EQ(result.sum.data()[0], static_cast<float>(seen)) << "all scores are equal";
    for (std::size_t c = 0; c < 9; ++c) EXPECT_EQ(result.out.data()[c], 0.25f * static_cast<float>(seen));
  }
}

// Stored rows and their widened values.
TEST_P(AttentionOnEveryIsa, ConvertsStoredRowsAsScalarDoes) {
  const AttentionKernels& kernels = *GetParam()->attention;
  Random random(31);
  std::vector<std::uint32_t> widths = {127, 128, 192, 256, 576};
  for (std::uint32_t n = 1; n <= 70; ++n) widths.push_back(n);
  for (const std::uint32_t n : widths)
    for (const Numbers kind : {Numbers::plain, Numbers::extreme, Numbers::non_finite})
      for (const bool is_int8 : {false, true}) {
        const Grid x = Grid::random(random, 1, n, 0, kind);
        const std::size_t words = kv_row_words(is_int8 ? KvDtype::int8 : KvDtype::bf16, n);
        Grid found(1, words, 3), expected(1, words, 3), back(1, n, 3), expected_back(1, n, 3);
        std::fill_n(found.data(), words, 0.0f);
        std::fill_n(expected.data(), words, 0.0f);
        (is_int8 ? kernels.narrow_int8 : kernels.narrow_bf16)(x.data(), n, found.data());
        (is_int8 ? kScalarAttention.narrow_int8 : kScalarAttention.narrow_bf16)(x.data(), n, expected.data());
        ASSERT_EQ(std::memcmp(found.data(), expected.data(), words * sizeof(float)), 0)
            << n << (is_int8 ? " int8" : " bf16");
        EXPECT_TRUE(found.intact());
        (is_int8 ? kernels.widen_int8 : kernels.widen_bf16)(found.data(), n, back.data());
        (is_int8 ? kScalarAttention.widen_int8 : kScalarAttention.widen_bf16)(found.data(), n,
                                                                              expected_back.data());
        ASSERT_TRUE(same_bits(back, expected_back)) << n << (is_int8 ? " int8" : " bf16");
        EXPECT_TRUE(back.intact());
      }
}

TEST(StoredRows, AreWithinHalfAStep) {
  Random random(32);
  const Grid x = Grid::random(random, 1, 200);
  Grid row(1, 200), back(1, 200);
  kScalarAttention.narrow_bf16(x.data(), 200, row.data());
  kScalarAttention.widen_bf16(row.data(), 200, back.data());
  for (std::size_t i = 0; i < 200; ++i)
    EXPECT_NEAR(back.data()[i], x.data()[i], std::fabs(x.data()[i]) * 0x1p-8) << i;
  kScalarAttention.narrow_int8(x.data(), 200, row.data());
  kScalarAttention.widen_int8(row.data(), 200, back.data());
  for (std::size_t group = 0; group < 200; group += kKvGroup) {
    float largest = 0;
    const std::size_t end = std::min<std::size_t>(200, group + kKvGroup);
    for (std::size_t i = group; i < end; ++i) largest = std::max(largest, std::fabs(x.data()[i]));
    for (std::size_t i = group; i < end; ++i) EXPECT_NEAR(back.data()[i], x.data()[i], largest / 253) << i;
  }
}

TEST_P(AttentionOnEveryIsa, ReportsAMaxOfZeroAsPositive) {
  Random random(8);
  Block block(random, {16, 1}, {40, 7});
  for (std::size_t j = 0; j < block.positions(); ++j)
    for (std::size_t i = 0; i < 16; ++i) {
      block.queries.row(0)[i] = block.queries.row(1)[i] = 1e-30f;
      block.keys.row(j)[i] = j % 3 == 1 ? 1e-30f : -1e-30f;  // products underflow but keep their sign
    }
  const Attended result = attend(*GetParam()->attention, block);
  EXPECT_TRUE(same_bits(result, attend(kScalarAttention, block)));
  for (std::size_t query = 0; query < 2; ++query) {
    EXPECT_EQ(result.max.data()[query], 0.0f);
    EXPECT_FALSE(std::signbit(result.max.data()[query]));
  }
}

TEST_P(AttentionOnEveryIsa, MergesAndFinishesAsScalarDoes) {
  Random random(5);
  for (std::uint32_t dim = 1; dim <= 70; ++dim)
    for (const Numbers kind : {Numbers::plain, Numbers::extreme, Numbers::non_finite}) {
      const Grid block_out = Grid::random(random, 1, dim, 0, kind),
                 block = Grid::random(random, 1, 2, 0, kind);
      Grid expected_out = Grid::random(random, 1, dim, 0, kind),
           expected = Grid::random(random, 1, 2, 0, kind);
      Grid out = expected_out, running = expected;
      kScalarAttention.merge(&expected.data()[0], &expected.data()[1], expected_out.data(), block.data()[0],
                             block.data()[1], block_out.data(), dim);
      GetParam()->attention->merge(&running.data()[0], &running.data()[1], out.data(), block.data()[0],
                                   block.data()[1], block_out.data(), dim);
      EXPECT_TRUE(same_bits(running, expected)) << dim;
      EXPECT_TRUE(same_bits(out, expected_out)) << dim;

      Grid y(1, dim), expected_y(1, dim);
      kScalarAttention.finish(out.data(), block.data()[1], dim, expected_y.data());
      GetParam()->attention->finish(out.data(), block.data()[1], dim, y.data());
      EXPECT_TRUE(same_bits(y, expected_y)) << dim;
      GetParam()->attention->finish(out.data(), block.data()[1], dim, out.data());
      EXPECT_TRUE(same_bits(out, expected_y)) << dim << " in place";
    }
}

// ---- The specification against double arithmetic --------------------------------------------------------

constexpr double kRounding = 0x1p-24;

double dot(const float* a, const float* b, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += double{a[i]} * b[i];
  return sum;
}
double dot_of_sizes(const float* a, const float* b, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += std::fabs(double{a[i]} * b[i]);
  return sum;
}

// One query of a block in double arithmetic, and the allowed error of a float computation.
struct Expected {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  std::vector<double> out;
  double max_error = 0, sum_error = 0;
  std::vector<double> out_error;
};

Expected in_double(const Block& block, std::size_t query) {
  const float* const q = block.queries.row(query);
  const std::uint32_t visible = block.visible[query], dim = block.shape.key_dim;
  Expected expected;
  std::vector<double> scores;
  for (std::uint32_t j = 0; j < visible; ++j) {
    const float* const key = block.keys.row(j);
    scores.push_back(dot(q, key, dim) * double{block.scale});
    expected.max = std::max(expected.max, scores.back());
    // Roundings of a product: those of its lane, four of the fold, and the scale.
    const double error =
        (dim / 16.0 + 1 + 4 + 1) * kRounding * dot_of_sizes(q, key, dim) * double{block.scale};
    expected.max_error = std::max(expected.max_error, error);
  }
  const double range = expected.max - *std::min_element(scores.begin(), scores.end());
  // An error before an exponential is a relative error after it: of the score, of the largest score and of
  // their difference. The exponential itself adds 4 roundings; 10 % because e^x - 1 exceeds x.
  const double p_error = 1.1 * (2 * expected.max_error + range * kRounding + 4 * kRounding);
  expected.out.resize(block.shape.value_dim);
  expected.out_error.resize(block.shape.value_dim);
  for (std::uint32_t j = 0; j < visible; ++j) {
    const double p = std::exp(scores[j] - expected.max);
    expected.sum += p;
    for (std::size_t c = 0; c < expected.out.size(); ++c) {
      expected.out[c] += p * double{block.values.row(j)[c]};
      expected.out_error[c] += p * std::fabs(block.values.row(j)[c]) * (p_error + visible * kRounding * 1.01);
    }
  }
  expected.sum_error = expected.sum * (p_error + (visible / 16.0 + 1 + 4) * kRounding * 1.01);
  return expected;
}

TEST(ScalarAttention, IsCloseToDouble) {
  Random random(6);
  for (const Shape shape : {Shape{1, 1}, Shape{17, 5}, Shape{40, 64}, Shape{256, 31}}) {
    const Block block(random, shape, {1, 2, 16, 100, 255, 256});
    const Attended result = attend(kScalarAttention, block);
    for (std::size_t query = 0; query < block.visible.size(); ++query) {
      const Expected expected = in_double(block, query);
      EXPECT_NEAR(result.max.data()[query], expected.max, expected.max_error);
      EXPECT_NEAR(result.sum.data()[query], expected.sum, expected.sum_error);
      for (std::size_t c = 0; c < shape.value_dim; ++c)
        EXPECT_NEAR(result.out.row(query)[c], expected.out[c], expected.out_error[c]) << query << ", " << c;
    }
  }
}

// With all scores zero every position has weight 1, so the sums are integers: those of 1, 2, ... `visible`.
TEST_P(AttentionOnEveryIsa, UsesEveryVisiblePositionAndNoOther) {
  constexpr std::uint32_t kKeyDim = 19, kValueDim = 33;
  Random random(8);
  for (const std::uint32_t visible : {1u, 2u, 15u, 16u, 17u, 254u, 255u, 256u})
    for (const std::size_t queries : {1u, 5u}) {
      std::vector<std::uint32_t> seen(queries, visible);
      seen.push_back(kAttentionBlock);  // so that the positions after `visible` exist
      Block block(random, {kKeyDim, kValueDim}, seen);
      for (std::size_t q = 0; q < seen.size(); ++q) std::fill_n(block.queries.row(q), kKeyDim, 0.0f);
      for (std::uint32_t j = 0; j < kAttentionBlock; ++j)
        std::fill_n(block.values.row(j), kValueDim, static_cast<float>(j + 1));
      const Attended result = attend(*GetParam()->attention, block);
      for (std::size_t q = 0; q < queries; ++q) {
        EXPECT_EQ(result.max.data()[q], 0.0f) << visible;
        EXPECT_EQ(result.sum.data()[q], static_cast<float>(visible));
        for (std::size_t c = 0; c < kValueDim; ++c)
          EXPECT_EQ(result.out.row(q)[c], static_cast<float>(visible * (visible + 1) / 2))
              << visible << ", " << c;
      }
    }
}

TEST(ScalarAttention, MergedBlocksAreTheSoftmaxOverAllPositions) {
  Random random(7);
  constexpr Shape kShape{64, 24};
  constexpr std::uint32_t kLast = 77;  // positions of the fourth block
  const std::vector<std::uint32_t> whole = {kAttentionBlock};
  std::vector<Block> blocks = {
      {random, kShape, whole}, {random, kShape, whole}, {random, kShape, whole}, {random, kShape, {kLast}}};
  for (Block& block : blocks) {
    block.queries = blocks[0].queries;
    block.scale = 1.5f;  // so that weights differ widely
  }

  float max = -std::numeric_limits<float>::infinity(), sum = 0;
  std::vector<float> out(kShape.value_dim, 0.0f);
  double expected_max = max;
  std::vector<Expected> expected;
  for (const Block& block : blocks) {
    const Attended part = attend(kScalarAttention, block);
    kScalarAttention.merge(&max, &sum, out.data(), part.max.data()[0], part.sum.data()[0], part.out.data(),
                           kShape.value_dim);
    expected.push_back(in_double(block, 0));
    expected_max = std::max(expected_max, expected.back().max);
  }
  std::vector<float> y(kShape.value_dim);
  kScalarAttention.finish(out.data(), sum, kShape.value_dim, y.data());

  double total = 0;
  for (const Expected& part : expected) total += part.sum * std::exp(part.max - expected_max);
  for (std::size_t c = 0; c < y.size(); ++c) {
    double numerator = 0;
    for (const Expected& part : expected) numerator += part.out[c] * std::exp(part.max - expected_max);
    EXPECT_NEAR(y[c], numerator / total, 1e-5) << c;
  }
}

TEST(ScalarAttention, MergesIntoAnEmptyState) {
  float max = -std::numeric_limits<float>::infinity(), sum = 0;
  float out[2] = {0, 0};
  const float block[2] = {3, -0.5f};
  kScalarAttention.merge(&max, &sum, out, 7.5f, 2, block, 2);
  EXPECT_EQ(max, 7.5f);
  EXPECT_EQ(sum, 2);
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], -0.5f);
}

}  // namespace
}  // namespace moeflux
