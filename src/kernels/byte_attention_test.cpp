#include "kernels/byte_attention.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/memory/aligned_buffer.h"
#include "kernels/scalar_tables.h"
#include "kernels/testing/grid.h"

namespace moeflux {
namespace {

using test::Attended;
using test::Grid;
using test::Numbers;
using test::Random;
using test::same_bits;

// Queries, and a block of `rows` positions, stored as bytes.
struct Block {
  ByteBlockShape shape;
  std::uint32_t rows;
  Grid queries, keys, values;  // as floats
  std::vector<float> stored_keys,
      stored_values;  // without a word to spare: the address sanitizer watches what is behind
  float scale;

  Block(Random& random, ByteBlockShape dims, std::uint32_t query_count, std::uint32_t positions,
        Numbers kind = Numbers::plain)
      : shape(dims),
        rows(positions),
        queries(Grid::random(random, query_count, dims.key_dim, 3, kind)),
        keys(Grid::random(random, positions, dims.key_dim, 1, kind)),
        values(Grid::random(random, positions, dims.value_dim, 5, kind)),
        scale(1 / std::sqrt(static_cast<float>(dims.key_dim))) {
    keep();
  }

  void keep() {
    const auto narrow = [](const Grid& from, std::vector<float>& to) {
      const auto cols = static_cast<std::uint32_t>(from.cols());
      const std::size_t words = kv_row_words(KvDtype::int8, cols);
      to.assign(from.rows() * words, 0.0f);
      for (std::size_t r = 0; r < from.rows(); ++r)
        kScalarAttention.narrow_int8(from.row(r), cols, to.data() + r * words);
    };
    narrow(keys, stored_keys);
    narrow(values, stored_values);
  }

  static StoredBytes kept(const std::vector<float>& rows_of, std::uint32_t dim) {
    return {.codes = reinterpret_cast<const std::int8_t*>(rows_of.data()),
            .scales = rows_of.data() + kv_code_words(dim),
            .stride = kv_row_words(KvDtype::int8, dim)};
  }

  AlignedBuffer open(const ByteAttentionKernels& kernels, std::uint32_t positions) const {
    AlignedBuffer block = std::move(*AlignedBuffer::create(shape.bytes()));
    std::memset(block.data(), 0x5a, shape.bytes());
    kernels.open(shape, kept(stored_keys, shape.key_dim), kept(stored_values, shape.value_dim), positions,
                 block.data());
    return block;
  }
  Grid narrow_queries(const ByteAttentionKernels& kernels) const {
    Grid narrow(queries.rows(), byte_query_words(shape.key_dim), 2);
    for (std::size_t q = 0; q < queries.rows(); ++q)
      kernels.narrow_query(queries.row(q), shape.key_dim, narrow.row(q));
    return narrow;
  }
};

// Attends with queries [first, first + count).
void attend(const ByteAttentionKernels& kernels, const Block& block, const std::byte* opened,
            const Grid& queries, std::uint32_t visible, std::size_t first, std::size_t count,
            Attended& result) {
  kernels.attend({.shape = block.shape,
                  .block = opened,
                  .queries = queries.row(first),
                  .query_stride = queries.stride(),
                  .count = static_cast<std::uint32_t>(count),
                  .visible = visible,
                  .scale = block.scale,
                  .next = {{opened, 1000}, {opened + 64, visible % 3 * 77}},  // changes nothing
                  .max = result.max.data() + first,
                  .sum = result.sum.data() + first,
                  .out = result.out.row(first),
                  .out_stride = result.out.stride()});
}

Attended attend(const ByteAttentionKernels& kernels, const Block& block, std::uint32_t visible) {
  Attended result(block.queries.rows(), block.shape.value_dim);
  const AlignedBuffer opened = block.open(kernels, block.rows);
  attend(kernels, block, opened.data(), block.narrow_queries(kernels), visible, 0, block.queries.rows(),
         result);
  return result;
}
Attended attend(const ByteAttentionKernels& kernels, const Block& block) {
  return attend(kernels, block, block.rows);
}

class ByteAttentionOnEveryIsa : public test::OnEveryIsa {
 protected:
  const ByteAttentionKernels& kernels() const { return *GetParam()->byte_attention; }
};
INSTANTIATE_TEST_SUITE_P(, ByteAttentionOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

TEST_P(ByteAttentionOnEveryIsa, MatchesScalarForShapesOfModels) {
  Random random(1);
  for (const ByteBlockShape shape :
       {ByteBlockShape{256, 256}, ByteBlockShape{192, 128}, ByteBlockShape{576, 512}})
    for (const std::uint32_t queries : {1u, 8u, 16u}) {
      const Block block(random, shape, queries, kAttentionBlock);
      EXPECT_TRUE(same_bits(attend(kernels(), block), attend(kScalarByteAttention, block)))
          << shape.key_dim << " and " << shape.value_dim << ", " << queries << " queries";
    }
}

TEST_P(ByteAttentionOnEveryIsa, MatchesScalarForEveryWidth) {
  Random random(2);
  for (std::uint32_t dim = 1; dim <= 140; ++dim)
    for (const Numbers kind : {Numbers::plain, Numbers::extreme, Numbers::non_finite}) {
      const auto rows = static_cast<std::uint32_t>(1 + random() % kAttentionBlock);
      const Block block(random, {dim, 141 - dim}, 1 + dim % 9, rows, kind);
      EXPECT_TRUE(same_bits(attend(kernels(), block), attend(kScalarByteAttention, block)))
          << dim << " and " << 141 - dim << ", " << rows << " positions";
    }
}

TEST_P(ByteAttentionOnEveryIsa, MatchesScalarForEveryVisibleCount) {
  Random random(3);
  const Block block(random, {70, 90}, 5, kAttentionBlock);
  for (std::uint32_t visible = 1; visible <= kAttentionBlock; ++visible)
    EXPECT_TRUE(same_bits(attend(kernels(), block, visible), attend(kScalarByteAttention, block, visible)))
        << visible;
}

TEST_P(ByteAttentionOnEveryIsa, IgnoresInvisiblePositions) {
  Random random(4);
  for (const std::uint32_t visible : {1u, 2u, 15u, 16u, 17u, 63u, 64u, 65u, 255u}) {
    Block block(random, {40, 24}, 3, kAttentionBlock);
    const Attended before = attend(kernels(), block, visible);
    for (std::uint32_t j = visible; j < kAttentionBlock; ++j) {
      std::fill_n(block.keys.row(j), 40, 1e30f);
      std::fill_n(block.values.row(j), 24, std::numeric_limits<float>::quiet_NaN());
    }
    block.keep();
    EXPECT_TRUE(same_bits(attend(kernels(), block, visible), before)) << visible;
    // Nor missing positions.
    block.rows = visible;
    EXPECT_TRUE(same_bits(attend(kernels(), block, visible), before)) << visible;
  }
}

TEST_P(ByteAttentionOnEveryIsa, OpensBlocksAndNarrowsQueriesAsScalarDoes) {
  Random random(5);
  for (const ByteBlockShape shape :
       {ByteBlockShape{256, 256}, ByteBlockShape{17, 3}, ByteBlockShape{130, 80}})
    for (const std::uint32_t rows : {1u, 2u, 16u, 33u, 255u, 256u}) {
      const Block block(random, shape, 2, rows, Numbers::extreme);
      const AlignedBuffer found = block.open(kernels(), rows),
                          expected = block.open(kScalarByteAttention, rows);
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), shape.bytes()), 0)
          << shape.key_dim << ", " << rows;
      const Grid query = block.narrow_queries(kernels()),
                 expected_query = block.narrow_queries(kScalarByteAttention);
      for (std::size_t q = 0; q < 2; ++q)
        EXPECT_EQ(std::memcmp(query.row(q), expected_query.row(q), query.cols() * sizeof(float)), 0);
      EXPECT_TRUE(query.intact());
    }
}

TEST_P(ByteAttentionOnEveryIsa, GivesAQueryTheSameBitsInEveryBatch) {
  EXPECT_TRUE(rc::check([this] {
    Random random(*rc::gen::arbitrary<std::uint32_t>());
    const ByteBlockShape shape{*rc::gen::inRange(1u, 150u), *rc::gen::inRange(1u, 150u)};
    const std::uint32_t queries = *rc::gen::inRange(1u, 18u);
    const Block block(random, shape, queries, *rc::gen::inRange(1u, 257u));
    const std::uint32_t visible = *rc::gen::inRange(1u, block.rows + 1);
    const AlignedBuffer opened = block.open(kernels(), block.rows);
    const Grid narrow = block.narrow_queries(kernels());
    Attended piecewise(queries, shape.value_dim);
    for (std::size_t first = 0, count = 0; first < queries; first += count) {
      count = *rc::gen::inRange<std::size_t>(1, queries - first + 1);
      attend(kernels(), block, opened.data(), narrow, visible, first, count, piecewise);
    }
    RC_ASSERT(same_bits(piecewise, attend(kernels(), block, visible)));
  }));
}

TEST_P(ByteAttentionOnEveryIsa, SumsTheLargestNumbersExactly) {
  Random random(6);
  Block block(random, {64, 64}, 4, kAttentionBlock);
  for (std::uint32_t j = 0; j < kAttentionBlock; ++j)
    for (std::uint32_t c = 0; c < 64; ++c) {
      block.keys.row(j)[c] = 127;
      block.values.row(j)[c] = c % 2 == 0 ? 127.0f : -127.0f;
    }
  for (std::size_t q = 0; q < 4; ++q) std::fill_n(block.queries.row(q), 64, q % 2 == 0 ? 127.0f : -127.0f);
  block.keep();
  const Attended result = attend(kernels(), block);
  EXPECT_TRUE(same_bits(result, attend(kScalarByteAttention, block)));
  for (std::size_t q = 0; q < 4; ++q) {
    EXPECT_EQ(result.max.data()[q], (q % 2 == 0 ? 1.0f : -1.0f) * 127 * 127 * 64 * block.scale);
    EXPECT_EQ(result.sum.data()[q], 256.0f);
    for (std::size_t c = 0; c < 64; ++c)
      EXPECT_NEAR(result.out.row(q)[c], (c % 2 == 0 ? 1.0f : -1.0f) * 127 * 256, 1e-2) << c;
  }
}

// Attention over the same bytes in double arithmetic.
struct Expected {
  double max = -HUGE_VAL, sum = 0;
  std::vector<double> out;
};

Expected in_double(const Block& block, std::size_t query) {
  const std::uint32_t key_dim = block.shape.key_dim, value_dim = block.shape.value_dim;
  std::vector<float> bytes(kv_row_words(KvDtype::int8, key_dim)), q(key_dim),
      row(std::max(key_dim, value_dim));
  kScalarAttention.narrow_int8(block.queries.row(query), key_dim, bytes.data());
  kScalarAttention.widen_int8(bytes.data(), key_dim, q.data());
  Expected expected;
  std::vector<double> scores(block.rows);
  for (std::uint32_t j = 0; j < block.rows; ++j) {
    kScalarAttention.widen_int8(block.stored_keys.data() + j * bytes.size(), key_dim, row.data());
    for (std::uint32_t c = 0; c < key_dim; ++c) scores[j] += double{q[c]} * row[c];
    scores[j] *= block.scale;
    expected.max = std::max(expected.max, scores[j]);
  }
  expected.out.resize(value_dim);
  for (std::uint32_t j = 0; j < block.rows; ++j) {
    const double p = std::exp(scores[j] - expected.max);
    expected.sum += p;
    kScalarAttention.widen_int8(block.stored_values.data() + j * kv_row_words(KvDtype::int8, value_dim),
                                value_dim, row.data());
    for (std::uint32_t c = 0; c < value_dim; ++c) expected.out[c] += p * row[c];
  }
  return expected;
}

TEST(ScalarByteAttention, IsCloseToDoubleOverTheSameBytes) {
  Random random(7);
  for (const ByteBlockShape shape : {ByteBlockShape{1, 1}, ByteBlockShape{70, 64}, ByteBlockShape{256, 100}})
    for (const std::uint32_t rows : {1u, 16u, 100u, 256u}) {
      const Block block(random, shape, 3, rows);
      const Attended result = attend(kScalarByteAttention, block);
      for (std::size_t query = 0; query < 3; ++query) {
        const Expected expected = in_double(block, query);
        EXPECT_NEAR(result.max.data()[query], expected.max, 1e-5);
        EXPECT_NEAR(result.sum.data()[query], expected.sum, 1e-5 * expected.sum);
        // Each word has an error of half a step of 1 / 32767.
        const double most = 2.0 * rows / 65534 + 1e-4;
        for (std::size_t c = 0; c < shape.value_dim; ++c)
          EXPECT_NEAR(result.out.row(query)[c], expected.out[c], most) << query << ", " << c;
      }
    }
}

// With all scores zero every position has weight 1; only the last has a value.
TEST_P(ByteAttentionOnEveryIsa, UsesTheLastVisiblePosition) {
  constexpr std::uint32_t kDim = 70;
  Random random(9);
  for (const std::uint32_t rows : {1u, 2u, 16u, 17u, 254u, 255u, 256u}) {
    Block block(random, {kDim, kDim}, 3, rows);
    for (std::size_t q = 0; q < 3; ++q) std::fill_n(block.queries.row(q), kDim, 0.0f);
    for (std::uint32_t j = 0; j < rows; ++j)
      std::fill_n(block.values.row(j), kDim, j + 1 == rows ? 127.0f : 0.0f);
    block.keep();
    const Attended result = attend(kernels(), block);
    for (std::size_t q = 0; q < 3; ++q) {
      EXPECT_EQ(result.max.data()[q], 0.0f) << rows;
      EXPECT_EQ(result.sum.data()[q], static_cast<float>(rows));
      for (std::size_t c = 0; c < kDim; ++c)
        EXPECT_NEAR(result.out.row(q)[c], 127.0f, 1e-4f) << rows << ", " << c;
    }
  }
}

TEST(ScalarByteAttention, KeepsManySmallWeightsBesideALargeOne) {
  Random random(8);
  Block block(random, {64, 64}, 1, kAttentionBlock);
  std::fill_n(block.queries.row(0), 64, 1.0f);
  block.scale = 1;
  for (std::uint32_t j = 0; j < kAttentionBlock; ++j) {
    std::fill_n(block.keys.row(j), 64,
                j == 0 ? 0.1f : 0.0f);  // 255 positions with exp(-6.4) = 1 / 602 of the first
    std::fill_n(block.values.row(j), 64, j == 0 ? 0.0f : 1.0f);
  }
  block.keep();
  const Attended result = attend(kScalarByteAttention, block);
  for (std::size_t c = 0; c < 64; ++c) EXPECT_NEAR(result.out.data()[c], 255 * std::exp(-6.4), 0.01) << c;
}

}  // namespace
}  // namespace moeflux
