#include "ops/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

#include "base/sizes.h"
#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "kernels/testing/grid.h"
#include "ops/testing/processor.h"
#include "quant/testing/random_matrix.h"

namespace moeflux {
namespace {

using test::fastest;
using test::Grid;
using test::heads_of;
using test::Processor;
using test::Random;
using test::rows_of;
using test::same_bits;
using test::scalar;

constexpr AffineFormat kFourBits{4, 64, Dtype::bf16};

Grid copy_of_row(const Grid& grid, std::size_t row) {
  Grid copy(1, grid.cols());
  std::copy_n(grid.row(row), grid.cols(), copy.data());
  return copy;
}

// ---- Scratch ---------------------------------------------------------------------------------------------

TEST(Ops, RowsBeginAtCacheLinesInDifferentSets) {
  Processor processor(1);
  const Ops::Scope scope(processor.ops);
  for (const std::uint32_t cols : {1u, 15u, 16u, 17u, 1024u, 4096u, 7168u}) {
    const Rows rows = processor.ops.take(5, cols);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(rows.row(3)) % 64, 0u) << cols;
    EXPECT_GE(rows.stride, cols);
    EXPECT_NE(rows.stride % 1024, 0u) << cols;
  }
}

TEST(Ops, ReadAndWriteCopyRowsWithoutTheirGaps) {
  Processor processor(1);
  const Ops::Scope scope(processor.ops);
  const Rows rows = processor.ops.take(3, 5);
  std::vector<float> numbers(15), back(15);
  for (std::size_t i = 0; i < 15; ++i) numbers[i] = static_cast<float>(i);
  processor.ops.write(numbers, rows);
  EXPECT_EQ(rows.row(2)[1], 11.0f);
  processor.ops.read(rows, back);
  EXPECT_EQ(back, numbers);
}

// ---- Products --------------------------------------------------------------------------------------------

constexpr Precision kPrecisions[] = {Precision::exact, Precision::fast};

class OpsOnEveryIsa : public test::OnEveryIsa {};
INSTANTIATE_TEST_SUITE_P(, OpsOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

struct ProductCase {
  Encoding encoding;
  std::uint32_t rows, cols;
};
const ProductCase kProducts[] = {
    {kFourBits, 75, 192},
    {AffineFormat{8, 32, Dtype::f32}, 16, 96},
    {AffineFormat{3, 128, Dtype::bf16}, 200, 256},
    {PlainFormat{Dtype::bf16}, 1, 70},
    {PlainFormat{Dtype::f32}, 40, 33},
    {Fp8BlockFormat{Dtype::f32}, 33, 160},
};

Grid multiply(CpuOps& ops, const RandomMatrix& matrix, Grid x, Rounding rounding = Rounding::coarse) {
  const Ops::Scope scope(ops);
  Grid y(x.rows(), matrix.view().rows, 3);
  const TiledMatrix tiled = matrix.tiled();
  ops.matmul({{tiled, rows_of(y), rounding}}, ops.prepare(rows_of(x), rounding));
  return y;
}

TEST_P(OpsOnEveryIsa, ProductsHaveTheSameBitsForEveryBatchAndNumberOfThreads) {
  Random random(1);
  for (const Precision precision : kPrecisions) {
    Processor alone(1, scalar(), precision), one(1, *GetParam(), precision), two(2, *GetParam(), precision);
    for (const ProductCase& product : kProducts) {
      const RandomMatrix matrix(product.rows, product.cols, product.encoding, random);
      for (const std::size_t batch : {1u, 2u, 7u, 19u}) {
        const Grid x = Grid::random(random, batch, product.cols, 5);
        const Grid y = multiply(one.ops, matrix, x);
        EXPECT_TRUE(same_bits(multiply(two.ops, matrix, x), y)) << describe(product.encoding);
        for (std::size_t row = 0; row < batch; ++row)
          EXPECT_TRUE(same_bits(copy_of_row(y, row),
                                copy_of_row(multiply(alone.ops, matrix, copy_of_row(x, row)), 0)))
              << describe(product.encoding) << ", row " << row << " of " << batch;
      }
    }
  }
}

// Activations that already are bytes are not rounded, so both precisions differ only in the order of sums.
TEST(CpuOps, FastQuantizesActivationsOfAffineMatricesOnly) {
  Random random(21);
  Processor exact(1, fastest(), Precision::exact), fast(1, fastest(), Precision::fast);
  for (const ProductCase& product : kProducts) {
    const RandomMatrix matrix(product.rows, product.cols, product.encoding, random);
    const Grid any = Grid::random(random, 3, product.cols);
    const bool is_affine = std::holds_alternative<AffineFormat>(product.encoding);
    EXPECT_EQ(static_cast<bool>(same_bits(multiply(fast.ops, matrix, any), multiply(exact.ops, matrix, any))),
              !is_affine)
        << describe(product.encoding);
    Grid bytes(3, product.cols);
    for (std::size_t row = 0; row < 3; ++row)
      for (std::size_t c = 0; c < product.cols; ++c)
        bytes.row(row)[c] = c % 32 == 0 ? 127.0f : static_cast<float>(random() % 255) - 127.0f;
    const Grid a = multiply(fast.ops, matrix, bytes), b = multiply(exact.ops, matrix, bytes);
    for (std::size_t row = 0; row < 3; ++row)
      for (std::size_t r = 0; r < product.rows; ++r) EXPECT_NEAR(a.row(row)[r], b.row(row)[r], 2e-2) << r;
  }
}

TEST_P(OpsOnEveryIsa, SeveralProductsInOneCallMatchSingleOnes) {
  Random random(22);
  std::vector<RandomMatrix> matrices;
  for (const std::uint32_t rows : {75u, 16u, 1u, 48u}) matrices.emplace_back(rows, 192u, kFourBits, random);
  const Grid x = Grid::random(random, 5, 192, 2);
  for (const Precision precision : kPrecisions)
    for (const unsigned threads : {1u, 2u, 5u}) {
      Processor processor(threads, *GetParam(), precision);
      const Ops::Scope scope(processor.ops);
      Grid batch = x;
      std::vector<Grid> found;
      for (const RandomMatrix& matrix : matrices) found.emplace_back(5, matrix.view().rows, 3);
      const TiledMatrix a = matrices[0].tiled(), b = matrices[1].tiled(), c = matrices[2].tiled(),
                        d = matrices[3].tiled();
      processor.ops.matmul({{a, rows_of(found[0])},
                            {b, rows_of(found[1]), Rounding::fine},
                            {c, rows_of(found[2])},
                            {d, rows_of(found[3])}},
                           processor.ops.prepare(rows_of(batch), Rounding::fine));
      Processor alone(1, scalar(), precision);
      for (std::size_t i = 0; i < matrices.size(); ++i)
        EXPECT_TRUE(same_bits(
            found[i], multiply(alone.ops, matrices[i], x, i == 1 ? Rounding::fine : Rounding::coarse)))
            << i << ", " << threads << " threads";
    }
}

// Gate and up with alternating blocks, as in a packed expert, and separately.
TEST_P(OpsOnEveryIsa, AlternatingMlpBlocksGiveTheSameBits) {
  Random random(23);
  for (const std::uint32_t hidden : {64u, 160u, 96u}) {
    const RandomMatrix gate(hidden, 192, kFourBits, random), up(hidden, 192, kFourBits, random),
        down(75, hidden, AffineFormat{4, 32, Dtype::bf16}, random);
    const std::size_t block_bytes = tile16::block_bytes(gate.tiled().encoding, 192);
    std::vector<std::byte> both(2 * block_bytes * (hidden / 16));
    for (std::size_t block = 0; block < hidden / 16; ++block) {
      std::memcpy(both.data() + 2 * block * block_bytes, gate.tiled().first_block + block * block_bytes,
                  block_bytes);
      std::memcpy(both.data() + (2 * block + 1) * block_bytes, up.tiled().first_block + block * block_bytes,
                  block_bytes);
    }
    TiledMatrix first = gate.tiled(), second = up.tiled();
    first.first_block = both.data();
    second.first_block = both.data() + block_bytes;
    first.block_stride = second.block_stride = 2 * block_bytes;
    const Grid x = Grid::random(random, 9, 192, 2);
    for (const Precision precision : kPrecisions)
      for (const unsigned threads : {1u, 2u, 3u}) {
        const auto run = [&](Processor processor, const TiledMatrix& g, const TiledMatrix& u) {
          const Ops::Scope scope(processor.ops);
          Grid batch = x, y(9, 75, 1);
          processor.ops.mlp({g, u, down.tiled()}, processor.ops.prepare(rows_of(batch)), rows_of(y));
          EXPECT_EQ(processor.ops.counters().matrix_calls, 3u);
          return y;
        };
        const Grid expected = run(Processor(1, scalar(), precision), gate.tiled(), up.tiled());
        EXPECT_TRUE(same_bits(run(Processor(threads, *GetParam(), precision), first, second), expected))
            << hidden;
        EXPECT_TRUE(
            same_bits(run(Processor(threads, *GetParam(), precision), gate.tiled(), up.tiled()), expected))
            << hidden;
      }
  }
}

TEST(CpuOps, ProductsAreCloseToFloat64) {
  Random random(2);
  Processor processor(2);
  for (const ProductCase& product : kProducts) {
    const RandomMatrix matrix(product.rows, product.cols, product.encoding, random);
    const std::vector<float> numbers = matrix.numbers();
    const Grid x = Grid::random(random, 3, product.cols);
    const Grid y = multiply(processor.ops, matrix, x);
    for (std::size_t row = 0; row < 3; ++row)
      for (std::size_t r = 0; r < product.rows; ++r) {
        double expected = 0;
        for (std::size_t c = 0; c < product.cols; ++c)
          expected += static_cast<double>(numbers[r * product.cols + c]) * static_cast<double>(x.row(row)[c]);
        EXPECT_NEAR(y.row(row)[r], expected, 1e-5) << describe(product.encoding);
      }
  }
}

TEST_P(OpsOnEveryIsa, HeadProductsMatchSingleHeads) {
  Random random(3);
  struct Case {
    Encoding encoding;
    std::uint32_t heads, rows, cols;
  };
  for (const Case& shape : {Case{kFourBits, 3, 24, 64}, Case{PlainFormat{Dtype::f32}, 5, 64, 20},
                            Case{PlainFormat{Dtype::bf16}, 1, 7, 32}}) {
    const std::uint32_t padded = (shape.rows + 15) / 16 * 16;
    const RandomMatrix all(std::uint64_t{padded} * shape.heads, shape.cols, shape.encoding, random);
    const Grid x = Grid::random(random, 6, std::size_t{shape.heads} * shape.cols, 4);
    for (const unsigned threads : {1u, 2u}) {
      Processor processor(threads, *GetParam());
      Grid batch = x;
      Grid y(6, std::size_t{shape.heads} * shape.rows, 2);
      processor.ops.head_matmul(test::consecutive_heads(all.tiled(), shape.heads, shape.rows),
                                heads_of(batch, shape.heads), heads_of(y, shape.heads));
      EXPECT_TRUE(y.intact());
      for (std::uint32_t head = 0; head < shape.heads; ++head) {
        const TiledMatrix one = test::consecutive_heads(all.tiled(), shape.heads, shape.rows).of(head);
        Grid expected(6, shape.rows), found(6, shape.rows);
        const Ops::Scope scope(processor.ops);
        const Rows part = rows_of(batch).columns(head * shape.cols, shape.cols);
        processor.ops.matmul(one, processor.ops.prepare(part), rows_of(expected));
        for (std::uint32_t row = 0; row < 6; ++row)
          std::copy_n(y.row(row) + std::size_t{head} * shape.rows, shape.rows, found.row(row));
        EXPECT_TRUE(same_bits(found, expected)) << "head " << head;
      }
    }
  }
}

TEST_P(OpsOnEveryIsa, TransposedHeadProductsMatchSingleHeads) {
  Random random(25);
  struct Case {
    Encoding encoding;
    std::uint32_t heads, rows, cols;
  };
  for (const Case& shape :
       {Case{kFourBits, 5, 32, 128}, Case{PlainFormat{Dtype::bf16}, 3, 20, 70}, Case{kFourBits, 1, 7, 64}}) {
    const std::uint32_t padded = (shape.rows + 15) / 16 * 16;
    const RandomMatrix all(std::uint64_t{padded} * shape.heads, shape.cols, shape.encoding, random);
    const HeadMatrices matrices = test::consecutive_heads(all.tiled(), shape.heads, shape.rows);
    const Grid x = Grid::random(random, 6, std::size_t{shape.heads} * shape.rows, 4);
    Processor alone(1, scalar());
    for (const unsigned threads : {1u, 2u}) {
      Processor processor(threads, *GetParam());
      Grid batch = x;
      Grid y(6, std::size_t{shape.heads} * shape.cols, 2);
      processor.ops.head_matmul_transposed(matrices, heads_of(batch, shape.heads), heads_of(y, shape.heads));
      EXPECT_EQ(processor.ops.counters().matrix_calls, 1u);
      EXPECT_TRUE(y.intact());
      for (std::uint32_t head = 0; head < shape.heads; ++head)
        for (std::uint32_t row = 0; row < 6; ++row) {
          Grid expected(1, shape.cols);
          alone.ops.head_matmul_transposed(
              {matrices.of(head), 1, 0},
              Heads{heads_of(batch, shape.heads).head(row, head), 1, 1, shape.rows, 0, 0},
              heads_of(expected, 1));
          EXPECT_TRUE(std::equal(expected.row(0), expected.row(0) + shape.cols,
                                 y.row(row) + std::size_t{head} * shape.cols))
              << "head " << head << ", row " << row;
        }
    }
  }
}

TEST(CpuOps, EmbedCopiesTheRowsOfTheTokens) {
  Random random(4);
  const RandomMatrix table(50, 64, kFourBits, random);
  const std::vector<float> numbers = table.numbers();
  const std::vector<TokenId> tokens = {TokenId(49), TokenId(0), TokenId(17), TokenId(17)};
  Processor processor(2);
  Grid out(4, 64);
  processor.ops.embed(table.tiled(), tokens, rows_of(out));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    EXPECT_TRUE(std::equal(out.row(i), out.row(i) + 64, numbers.data() + std::size_t{tokens[i].index()} * 64))
        << i;
}

// ---- Norms -----------------------------------------------------------------------------------------------

// Rows so small that epsilon matters: the test fails if it is dropped, doubled or added in the wrong place.
TEST_P(OpsOnEveryIsa, NormsOfSmallRowsAreCloseToFloat64) {
  constexpr std::uint32_t kRows = 3, kHeads = 2, kDim = 40;
  constexpr float kEps = 1e-6f, kScale = 0.3f;
  constexpr double kNear = 1e-5;  // relative
  Random random(24);
  Grid x = Grid::random(random, kRows, kHeads * kDim, 3),
       gate = Grid::random(random, kRows, kHeads * kDim, 1);
  for (std::uint32_t row = 0; row < kRows; ++row)
    for (std::uint32_t c = 0; c < kHeads * kDim; ++c) x.row(row)[c] *= 1e-3f;
  const Grid weight = Grid::random(random, 1, kHeads * kDim);
  const std::span<const float> of_head(weight.data(), kDim), of_row(weight.data(), kHeads * kDim);
  Grid whole(kRows, kHeads * kDim), rms(kRows, kHeads * kDim), gated(kRows, kHeads * kDim),
      l2(kRows, kHeads * kDim);
  Processor processor(2, *GetParam());
  processor.ops.rms_norm(rows_of(x), of_row, kEps, rows_of(whole));
  processor.ops.rms_norm(heads_of(x, kHeads), of_head, kEps, heads_of(rms, kHeads));
  processor.ops.gated_rms_norm(heads_of(x, kHeads), of_head, heads_of(gate, kHeads), kEps,
                               heads_of(gated, kHeads));
  processor.ops.l2_norm(heads_of(x, kHeads), kEps, kScale, heads_of(l2, kHeads));

  const auto sum_of_squares = [&](std::uint32_t row, std::uint32_t first, std::uint32_t count) {
    double sum = 0;
    for (std::uint32_t c = first; c < first + count; ++c) sum += double{x.row(row)[c]} * x.row(row)[c];
    return sum;
  };
  const auto expect_near = [](float found, double expected, const char* what) {
    EXPECT_NEAR(found, expected, kNear * std::fabs(expected)) << what;
  };
  for (std::uint32_t row = 0; row < kRows; ++row)
    for (std::uint32_t head = 0; head < kHeads; ++head) {
      const double in_row = sum_of_squares(row, 0, kHeads * kDim),
                   in_head = sum_of_squares(row, head * kDim, kDim);
      for (std::uint32_t i = 0; i < kDim; ++i) {
        const std::uint32_t c = head * kDim + i;
        const double xi = x.row(row)[c], gi = gate.row(row)[c], eps = double{kEps};
        expect_near(whole.row(row)[c], xi / std::sqrt(in_row / (kHeads * kDim) + eps) * weight.data()[c],
                    "rms of rows");
        const double normed = xi / std::sqrt(in_head / kDim + eps) * weight.data()[i];
        expect_near(rms.row(row)[c], normed, "rms of heads");
        expect_near(gated.row(row)[c], normed * gi / (1 + std::exp(-gi)), "gated rms");
        expect_near(l2.row(row)[c], xi / std::sqrt(in_head + eps) * double{kScale}, "l2");
      }
    }
}

// ---- Recurrent layers ------------------------------------------------------------------------------------

TEST_P(OpsOnEveryIsa, RecurrentRowsHaveTheSameBitsForEverySplit) {
  constexpr std::uint32_t kRows = 11, kWidth = 4;
  constexpr DeltaRuleShape kShape{2, 4, 24, 20};
  constexpr std::uint32_t kChannels = 2 * 2 * 24 + 4 * 20;  // queries, keys, values
  Random random(8);
  Grid x = Grid::random(random, 2 * kRows, kChannels, 3);  // two sessions, one after the other
  Grid weight = Grid::random(random, kChannels, kWidth);
  Grid decay = Grid::random(random, 2 * kRows, 4), beta = Grid::random(random, 2 * kRows, 4);
  Grid rate = Grid::random(random, 1, 4), dt_bias = Grid::random(random, 1, 4);
  const std::span<const float> weights(weight.data(), kChannels * kWidth);

  struct State {
    std::vector<float> conv = std::vector<float>((kWidth - 1) * kChannels);
    std::vector<float> delta = std::vector<float>(4 * 24 * 20);
  };
  // Each step takes cuts[0] rows of the first session and cuts[1] of the second.
  const auto run = [&](CpuOps& ops, std::array<std::uint32_t, 2> cuts) {
    Grid mixed(2 * kRows, kChannels), y(2 * kRows, 4 * 20);
    Grid a = decay, b = beta;
    ops.decay_beta(rows_of(a), rows_of(b), {rate.data(), 4}, {dt_bias.data(), 4}, rows_of(a), rows_of(b));
    State before[2], after[2];
    for (std::uint32_t step = 0; step * std::min(cuts[0], cuts[1]) < kRows; ++step) {
      std::vector<RecurrentSegment> conv, delta;
      for (std::uint32_t s = 0; s < 2; ++s) {
        const std::uint32_t first = step * cuts[s];
        if (first >= kRows) continue;
        const std::uint32_t count = std::min(cuts[s], kRows - first);
        conv.push_back({{s * kRows + first, count}, before[s].conv.data(), after[s].conv.data()});
        delta.push_back({{s * kRows + first, count}, before[s].delta.data(), after[s].delta.data()});
      }
      ops.conv(conv, rows_of(x), weights, kWidth, rows_of(mixed));
      const Heads queries = as_heads(rows_of(mixed).columns(0, 48), 2, 24);
      const Heads keys = as_heads(rows_of(mixed).columns(48, 48), 2, 24);
      const Heads values = as_heads(rows_of(mixed).columns(96, 80), 4, 20);
      ops.delta_rule(delta, kShape, queries, keys, values, rows_of(a), rows_of(b), heads_of(y, 4));
      std::swap(before, after);
    }
    return y;
  };

  Processor reference(1, scalar());
  const Grid expected = run(reference.ops, {kRows, kRows});
  constexpr std::array<std::uint32_t, 2> kCuts[] = {{1, 1}, {2, 2}, {3, 3}, {kRows, kRows}, {1, 4}, {4, 1}};
  for (const unsigned threads : {1u, 2u})
    for (const auto& cuts : kCuts) {
      Processor processor(threads, *GetParam());
      EXPECT_TRUE(same_bits(run(processor.ops, cuts), expected))
          << threads << " threads, " << cuts[0] << " and " << cuts[1] << " rows a step";
    }
}

// ---- Routing ---------------------------------------------------------------------------------------------

struct Routed {
  std::vector<std::uint32_t> experts;
  std::vector<float> weights;
  std::uint32_t not_finite;
  Routed(Ops& ops, const RouterRule& rule, Grid logits)
      : experts(logits.rows() * rule.experts_per_token),
        weights(experts.size()),
        not_finite(ops.route(rule, rows_of(logits), experts, weights)) {}
};

RouterRule softmax_rule() { return {.grouped = {}, .experts = 12, .experts_per_token = 3}; }
RouterRule grouped_rule(const std::vector<float>& bias) {
  return {.grouped_sigmoid = true,
          .grouped = {.groups = 4, .groups_kept = 2, .normalise = true, .scale = 2.5f},
          .bias = bias.data(),
          .experts = 12,
          .experts_per_token = 3};
}

TEST_P(OpsOnEveryIsa, RoutesTheSameForEveryBatchAndNumberOfThreads) {
  Random random(12);
  const Grid logits = Grid::random(random, 23, 12, 4);
  std::vector<float> bias(12);
  for (float& one : bias) one = 0.1f * random_number(random);
  for (const RouterRule& rule : {softmax_rule(), grouped_rule(bias)}) {
    Processor reference(1, scalar()), one(1, *GetParam()), two(2, *GetParam());
    const Routed expected(reference.ops, rule, logits);
    ASSERT_EQ(expected.not_finite, 0u);
    for (Processor* const processor : {&one, &two}) {
      const Routed found(processor->ops, rule, logits);
      EXPECT_EQ(found.experts, expected.experts);
      EXPECT_EQ(found.weights, expected.weights);
    }
    for (std::size_t row = 0; row < logits.rows(); ++row) {
      const Routed alone(one.ops, rule, copy_of_row(logits, row));
      EXPECT_TRUE(std::ranges::equal(alone.experts, std::span(expected.experts).subspan(3 * row, 3)));
      EXPECT_TRUE(std::ranges::equal(alone.weights, std::span(expected.weights).subspan(3 * row, 3)));
      EXPECT_TRUE(std::is_sorted(alone.experts.begin(), alone.experts.end()));
    }
  }
}

TEST(CpuOps, RoutesNoRowWithNonFiniteLogitsAndTheOthersAsIfItWereNotThere) {
  Random random(13);
  const std::vector<float> bias(12);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()})
    for (const RouterRule& rule : {softmax_rule(), grouped_rule(bias)})
      for (const unsigned threads : {1u, 2u, 4u}) {
        Grid logits = Grid::random(random, 16, 12);
        Processor processor(threads);
        Routed expected(processor.ops, rule, logits);
        for (const auto& [row, column] : {std::pair{13u, 0u}, {5u, 11u}, {9u, 3u}}) {
          logits.row(row)[column] = bad;
          std::fill_n(expected.experts.begin() + 3 * row, 3, kNoExpert);
          std::fill_n(expected.weights.begin() + 3 * row, 3, 0.0f);
        }
        const Routed routed(processor.ops, rule, logits);
        EXPECT_EQ(routed.not_finite, 3u);
        EXPECT_EQ(routed.experts, expected.experts);
        EXPECT_EQ(routed.weights, expected.weights);
      }
}

// ---- Measuring -------------------------------------------------------------------------------------------

// Runs every operation that takes scratch memory, on views whose memory a measuring instance must not touch.
void use_everything(Ops& ops, std::uint32_t rows, bool few_positions, KvDtype dtype,
                    const std::function<void(Rows)>& fill) {
  const Ops::Scope scope(ops);
  std::mt19937 random(14);
  const RandomMatrix matrix(75, 192, kFourBits, random);
  const RandomMatrix heads(3 * 32, 64, PlainFormat{Dtype::f32}, random);
  const Rows x = ops.take(rows, 192);
  fill(x);
  {
    const Ops::Scope inner(ops);
    ops.matmul(matrix.tiled(), ops.prepare(x), ops.take(rows, 75));
  }
  {
    const Ops::Scope inner(ops);
    const Rows y = ops.take(rows, 3 * 30);
    ops.head_matmul(test::consecutive_heads(heads.tiled(), 3, 30), as_heads(x, 3, 64), as_heads(y, 3, 30));
  }
  {
    const Ops::Scope inner(ops);
    const Rows logits = ops.take(rows, 12);
    fill(logits);
    const std::span<std::uint32_t> experts = ops.take_host<std::uint32_t>(rows * std::size_t{3});
    const std::span<float> weights = ops.take_host<float>(rows * std::size_t{3});
    EXPECT_EQ(ops.route(softmax_rule(), logits, experts, weights), 0u);
    for (const std::uint32_t expert : experts) EXPECT_LT(expert, 12u);
  }
  {
    const Ops::Scope inner(ops);
    const std::uint32_t position = few_positions ? 0 : 700;
    const std::span<KvBlockView> blocks = ops.take_host<KvBlockView>((position + rows) / kAttentionBlock + 1);
    for (KvBlockView& block : blocks) {
      const Rows memory = ops.take(2 * kAttentionBlock, 48);
      fill(memory);
      block = {memory.row(0), memory.row(kAttentionBlock)};
    }
    const KvSegment segment{{0, rows}, position, blocks, dtype};
    const AttentionShape shape{4, 1, 48, 48, 0.1f};
    const Rows y = ops.take(rows, 192);
    ops.append({&segment, 1}, as_heads(x.columns(0, 48), 1, 48), as_heads(x.columns(48, 48), 1, 48));
    ops.attend({&segment, 1}, shape, as_heads(x, 4, 48), as_heads(y, 4, 48));
  }
  const RandomMatrix gate(96, 192, kFourBits, random),
      down(192, 96, AffineFormat{8, 32, Dtype::bf16}, random);
  std::vector<std::uint32_t> all(rows);
  for (std::uint32_t i = 0; i < rows; ++i) all[i] = i;
  const std::vector<ExpertShare> shares(rows, {0.5f, true, true});
  const Input input = ops.prepare(x);
  const Rows sums = ops.take(rows, 192), y = ops.take(rows, 192);
  const std::vector<ExpertVisit> visits = {{gate.tiled(), gate.tiled(), down.tiled(), all, shares, 0},
                                           {gate.tiled(), gate.tiled(), down.tiled(), all, shares, rows}};
  ops.clear(y);
  ops.visit_adding(visits, input, sums, y);
  ops.visit(visits, input, ops.take(2 * rows, 192));
}

TEST(CpuOps, MeasuresTheScratchMemoryItTakes) {
  for (const unsigned threads : {1u, 2u, 7u})
    for (const std::uint32_t rows : {1u, 3u, 60u})
      for (const auto& [few_positions, precision, dtype] :
           {std::tuple(true, Precision::exact, KvDtype::f32),
            std::tuple(false, Precision::exact, KvDtype::f32),
            std::tuple(false, Precision::exact, KvDtype::bf16),
            std::tuple(true, Precision::fast, KvDtype::f32),
            std::tuple(false, Precision::fast, KvDtype::int8)}) {
        Processor processor(threads, fastest(), precision);
        std::mt19937 random(15);
        use_everything(processor.ops, rows, few_positions, dtype, [&](Rows made) {
          for (std::uint32_t row = 0; row < made.count; ++row)
            for (std::uint32_t c = 0; c < made.cols; ++c) made.row(row)[c] = random_number(random);
        });
        CpuOps measuring(threads, precision);
        use_everything(measuring, rows, few_positions, dtype, [](Rows) {});
        EXPECT_EQ(measuring.workspace().high_water(), processor.ops.workspace().high_water())
            << threads << " threads, " << rows << " rows";
        EXPECT_EQ(measuring.workspace().used(), 0u);
        EXPECT_EQ(measuring.counters(), processor.ops.counters());
      }
}

TEST(Ops, CallsTheHookAfterEveryProduct) {
  std::mt19937 random(17);
  const RandomMatrix matrix(75, 192, kFourBits, random), heads(3 * 32, 64, PlainFormat{Dtype::f32}, random);
  const RandomMatrix gate(96, 192, kFourBits, random),
      down(192, 96, AffineFormat{4, 32, Dtype::bf16}, random);
  Processor processor(1);
  Ops& ops = processor.ops;
  int calls = 0;
  ops.set_after_product([&] { ++calls; });
  const Ops::Scope scope(ops);
  const Rows x = ops.take(2, 192), y = ops.take(2, 192), partials = ops.take(4, 192);
  ops.clear(x);
  const Input input = ops.prepare(x);
  EXPECT_EQ(calls, 0) << "the hook costs a call per product, not per operation";
  ops.matmul({{matrix.tiled(), ops.take(2, 75)}, {matrix.tiled(), ops.take(2, 75)}}, input);
  EXPECT_EQ(calls, 1);
  ops.mlp({gate.tiled(), gate.tiled(), down.tiled()}, input, y);
  EXPECT_EQ(calls, 3);
  ops.head_matmul(test::consecutive_heads(heads.tiled(), 3, 30), as_heads(x, 3, 64),
                  as_heads(ops.take(2, 90), 3, 30));
  EXPECT_EQ(calls, 4);
  const std::vector<std::uint32_t> rows{0, 1};
  const std::vector<ExpertShare> shares(2, {0.5f, true, true});
  const ExpertVisit visit{gate.tiled(), gate.tiled(), down.tiled(), rows, shares, 0};
  ops.visit({&visit, 1}, input, partials);
  EXPECT_EQ(calls, 5);
  ops.clear(y);
  ops.visit_adding({&visit, 1}, input, ops.take(2, 192), y);
  EXPECT_EQ(calls, 6);
}

TEST(CpuOps, NamesItsPrecisions) {
  EXPECT_EQ(name_of(Precision::exact), "exact");
  EXPECT_EQ(name_of(Precision::fast), "fast");
}

TEST(CpuOpsContract, ShapesAgree) {
  std::mt19937 random(16);
  Processor processor(1);
  const RandomMatrix matrix(32, 64, kFourBits, random);
  Grid x(2, 64), y(2, 31);
  EXPECT_CONTRACT(processor.ops.matmul(matrix.tiled(), {rows_of(x), {}}, rows_of(y)), "the shapes agree");
}

}  // namespace
}  // namespace moeflux
