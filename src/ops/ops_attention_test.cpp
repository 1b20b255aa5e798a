// Attention of CpuOps: the same bits for every split over rows and threads, for every way to store keys and
// values.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/testing/processor.h"

namespace moeflux {
namespace {

using test::fastest;
using test::Grid;
using test::heads_of;
using test::Processor;
using test::Random;
using test::same_bits;
using test::scalar;

class OpsAttentionOnEveryIsa : public test::OnEveryIsa {};
INSTANTIATE_TEST_SUITE_P(, OpsAttentionOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

// Keys and values of several sessions, and the rows of a batch that continue them.
class Attention {
 public:
  struct Part {
    std::uint32_t position, rows;
  };

  Attention(const AttentionShape& shape, const std::vector<Part>& parts, bool has_values, std::uint32_t seed)
      : shape_(shape), has_values_(has_values) {
    Random random(seed);
    for (const Part& part : parts) {
      Session& session = sessions_.emplace_back(Session{part, row_count_, {}, {}, {}});
      row_count_ += part.rows;
      for (std::uint32_t block = 0; block * kAttentionBlock < part.position + part.rows; ++block)
        session.memory.push_back(Grid::random(random, shape.kv_heads * kAttentionBlock * (has_values ? 2 : 1),
                                              std::max(shape.key_dim, shape.value_dim)));
    }
    queries_ = Grid::random(random, row_count_, std::size_t{shape.heads} * shape.key_dim, 7);
    for (Session& session : sessions_) {
      for (Grid& memory : session.memory) {
        float* const values = memory.data() + std::size_t{shape.kv_heads} * kAttentionBlock * shape.key_dim;
        session.floats.push_back({memory.data(), has_values ? values : nullptr});
      }
      session.blocks = session.floats;
    }
  }

  std::uint32_t row_count() const { return row_count_; }

  std::vector<KvSegment> all() const {
    std::vector<KvSegment> segments;
    for (const Session& session : sessions_)
      segments.push_back(
          {{session.first_row, session.part.rows}, session.part.position, session.blocks, dtype_});
    return segments;
  }

  // Multiplies the values at the last position of every block, so that they affect every later result.
  void raise_values_at_block_ends(float factor) {
    for (Session& session : sessions_)
      for (const KvBlockView& block : session.floats)
        for (std::uint32_t head = 0; head < shape_.kv_heads; ++head)
          for (std::uint32_t c = 0; c < shape_.value_dim; ++c)
            block.values[((head + std::size_t{1}) * kAttentionBlock - 1) * shape_.value_dim + c] *= factor;
  }

  // Stores keys and values as `dtype`, from f32; expected() then sees them rounded so.
  void store_as(KvDtype dtype) {
    dtype_ = dtype;
    const AttentionKernels& kernels = *scalar().attention;
    const auto narrow = dtype == KvDtype::bf16 ? kernels.narrow_bf16 : kernels.narrow_int8;
    const auto widen = dtype == KvDtype::bf16 ? kernels.widen_bf16 : kernels.widen_int8;
    const auto keep = [&](float* rows, std::uint32_t dim, Grid& to, std::size_t first) {
      const std::size_t words = kv_row_words(dtype, dim);
      for (std::size_t row = 0; row < std::size_t{shape_.kv_heads} * kAttentionBlock; ++row) {
        narrow(rows + row * dim, dim, to.data() + first + row * words);
        widen(to.data() + first + row * words, dim, rows + row * dim);
      }
      return to.data() + first;
    };
    for (Session& session : sessions_)
      for (std::size_t i = 0; i < session.blocks.size(); ++i) {
        const KvBlockView floats = session.floats[i];
        const std::size_t rows = std::size_t{shape_.kv_heads} * kAttentionBlock;
        const std::size_t key_words = rows * kv_row_words(dtype, shape_.key_dim);
        Grid kept(1, key_words + rows * kv_row_words(dtype, shape_.value_dim));
        session.blocks[i].keys = keep(floats.keys, shape_.key_dim, kept, 0);
        if (has_values_) session.blocks[i].values = keep(floats.values, shape_.value_dim, kept, key_words);
        session.memory.push_back(std::move(kept));
      }
  }

  Grid attend(CpuOps& ops, const std::vector<KvSegment>& segments) {
    Grid y(row_count_, std::size_t{shape_.heads} * shape_.value_dim, 3);
    ops.attend(segments, shape_, heads_of(queries_, shape_.heads), heads_of(y, shape_.heads));
    return y;
  }

  // Each row in its own step.
  Grid attend_row_by_row(CpuOps& ops) {
    Grid y(row_count_, std::size_t{shape_.heads} * shape_.value_dim, 3);
    for (const KvSegment& segment : all())
      for (std::uint32_t i = 0; i < segment.rows; ++i) {
        const KvSegment one{{segment.first_row + i, 1}, segment.position + i, segment.blocks, segment.dtype};
        ops.attend({&one, 1}, shape_, heads_of(queries_, shape_.heads), heads_of(y, shape_.heads));
      }
    return y;
  }

  // Textbook softmax in float64, over keys and values as they are stored.
  double expected(std::uint32_t session, std::uint32_t row, std::uint32_t head, std::uint32_t channel) const {
    const Session& of = sessions_[session];
    const std::uint32_t kv_head = head / (shape_.heads / shape_.kv_heads);
    const float* const query = queries_.row(of.first_row + row) + std::size_t{head} * shape_.key_dim;
    double sum = 0, mixed = 0;
    for (std::uint32_t p = 0; p <= of.part.position + row; ++p) {
      const KvBlockView& block = of.floats[p / kAttentionBlock];
      const std::size_t place = std::size_t{kv_head} * kAttentionBlock + p % kAttentionBlock;
      const float* const key = block.keys + place * shape_.key_dim;
      const float* const value = has_values_ ? block.values + place * shape_.value_dim : key;
      double score = 0;
      for (std::uint32_t c = 0; c < shape_.key_dim; ++c)
        score += static_cast<double>(query[c]) * static_cast<double>(key[c]);
      const double weight = std::exp(score * static_cast<double>(shape_.scale));
      sum += weight;
      mixed += weight * static_cast<double>(value[channel]);
    }
    return mixed / sum;
  }

 private:
  struct Session {
    Part part;
    std::uint32_t first_row;
    std::vector<Grid> memory;         // what `floats` and `blocks` point to
    std::vector<KvBlockView> floats;  // f32: what the reference reads
    std::vector<KvBlockView> blocks;  // what the operations read
  };

  AttentionShape shape_;
  bool has_values_;
  KvDtype dtype_ = KvDtype::f32;
  std::vector<Session> sessions_;
  std::uint32_t row_count_ = 0;
  Grid queries_{0, 0};
};

struct AttentionCase {
  AttentionShape shape;
  bool has_values;
};
const AttentionCase kAttentionCases[] = {
    {{4, 4, 16, 16, 0.25f}, true},   // one kv head per head
    {{8, 2, 32, 32, 0.2f}, true},    // four heads share a kv head
    {{6, 1, 20, 12, 0.2f}, true},    // all heads share one kv head
    {{40, 1, 24, 16, 0.2f}, false},  // more heads than a task takes; values are parts of keys
};
// Blocks begin at 0, 256 and 512.
const std::vector<Attention::Part> kParts = {{0, 5},   {250, 9}, {599, 1}, {511, 1},
                                             {512, 1}, {0, 1},   {506, 10}};

struct StoredAs {
  KvDtype dtype;
  Precision precision;
};
constexpr StoredAs kStoredAs[] = {{KvDtype::f32, Precision::exact},
                                  {KvDtype::bf16, Precision::exact},
                                  {KvDtype::int8, Precision::exact},
                                  {KvDtype::int8, Precision::fast}};

TEST_P(OpsAttentionOnEveryIsa, AttentionHasTheSameBitsForEveryBatchAndNumberOfThreads) {
  for (const AttentionCase& attention_case : kAttentionCases)
    for (const auto& [dtype, precision] : kStoredAs) {
      Attention attention(attention_case.shape, kParts, attention_case.has_values, 5);
      if (dtype != KvDtype::f32) attention.store_as(dtype);
      Processor one(1, *GetParam(), precision);
      const Grid expected = attention.attend(one.ops, attention.all());
      const std::string how = std::string(name_of(dtype)) + ", " + std::string(name_of(precision));
      for (const unsigned threads : {1u, 2u, 5u}) {
        Processor some(threads, *GetParam(), precision);
        EXPECT_TRUE(same_bits(attention.attend(some.ops, attention.all()), expected))
            << threads << " threads, " << how;
        if (threads == 1) continue;
        EXPECT_TRUE(same_bits(attention.attend_row_by_row(some.ops), expected))
            << threads << " threads, alone, " << how;
      }
      Processor reference(1, scalar(), precision);
      EXPECT_TRUE(same_bits(attention.attend_row_by_row(reference.ops), expected))
          << attention_case.shape.heads << " heads, " << how;
    }
}

// Integer arithmetic produces other bits than float arithmetic, but close results.
TEST(CpuOps, ByteAttentionIsCloseToAttentionOverTheWidenedFloats) {
  for (const AttentionCase& attention_case : kAttentionCases) {
    Attention attention(attention_case.shape, kParts, attention_case.has_values, 5);
    attention.store_as(KvDtype::int8);
    Processor exact(1), fast(1, fastest(), Precision::fast);
    const Grid expected = attention.attend(exact.ops, attention.all());
    const Grid found = attention.attend(fast.ops, attention.all());
    EXPECT_FALSE(same_bits(found, expected)) << attention_case.shape.heads;
    // Numbers are between -2 and 2; a byte of a query has an error of at most 1/127.
    for (std::size_t row = 0; row < found.rows(); ++row)
      for (std::size_t c = 0; c < found.cols(); ++c)
        ASSERT_NEAR(found.row(row)[c], expected.row(row)[c], 0.05) << row << ", " << c;
  }
}

TEST(CpuOps, AttentionIsCloseToSoftmaxInFloat64) {
  for (const AttentionCase& attention_case : kAttentionCases) {
    const AttentionShape& shape = attention_case.shape;
    Attention attention(shape, {{590, 10}, {3, 2}}, attention_case.has_values, 6);
    for (const unsigned threads : {1u, 2u}) {
      Processor processor(threads);
      const Grid y = attention.attend(processor.ops, attention.all());
      for (const std::uint32_t row : {0u, 9u, 10u, 11u})
        for (std::uint32_t head = 0; head < shape.heads; ++head)
          for (std::uint32_t c = 0; c < shape.value_dim; c += 5)
            ASSERT_NEAR(y.row(row)[head * shape.value_dim + c],
                        attention.expected(row < 10 ? 0 : 1, row < 10 ? row : row - 10, head, c), 1e-5)
                << "row " << row << ", head " << head;
    }
  }
}

// A row at position 255 or 511 is the last of its block and sees all of it, itself included.
TEST(CpuOps, AttentionAtBlockEndsIsCloseToSoftmaxInFloat64) {
  const std::vector<Attention::Part> parts = {{254, 3}, {255, 1}, {511, 1}, {509, 5}};
  for (const AttentionCase& attention_case : kAttentionCases)
    for (const auto& [dtype, precision] : kStoredAs) {
      const AttentionShape& shape = attention_case.shape;
      Attention attention(attention_case.shape, parts, attention_case.has_values, 8);
      // Rounding a query to bytes changes results by a few percent; the position must have a larger effect.
      if (precision == Precision::fast && attention_case.has_values)
        attention.raise_values_at_block_ends(100);
      if (dtype != KvDtype::f32) attention.store_as(dtype);
      const double tolerance = precision == Precision::fast ? 0.05 : 1e-5;
      for (const KernelTable* const kernels : {&scalar(), &fastest()})
        for (const unsigned threads : {1u, 3u}) {
          Processor processor(threads, *kernels, precision);
          const Grid together = attention.attend(processor.ops, attention.all());
          const Grid alone = attention.attend_row_by_row(processor.ops);
          std::uint32_t row = 0;
          for (std::uint32_t session = 0; session < parts.size(); ++session)
            for (std::uint32_t i = 0; i < parts[session].rows; ++i, ++row)
              for (std::uint32_t head = 0; head < shape.heads; ++head)
                for (std::uint32_t c = 0; c < shape.value_dim; c += 5) {
                  const double expected = attention.expected(session, i, head, c);
                  const std::size_t at = std::size_t{head} * shape.value_dim + c;
                  ASSERT_NEAR(together.row(row)[at], expected, tolerance)
                      << "position " << parts[session].position + i << ", " << name_of(dtype);
                  ASSERT_NEAR(alone.row(row)[at], expected, tolerance)
                      << "position " << parts[session].position + i << ", " << name_of(dtype);
                }
        }
    }
}

TEST(CpuOps, AppendStoresRowsInTheirBlocks) {
  Random random(7);
  constexpr std::uint32_t kHeads = 2, kDim = 3;
  for (const bool has_values : {true, false}) {
    std::vector<Grid> memory;
    for (int block = 0; block < 3; ++block) memory.emplace_back(kHeads * kAttentionBlock * 2, kDim);
    const auto view_of = [&](Grid& grid) {
      return KvBlockView{grid.row(0), has_values ? grid.row(kHeads * kAttentionBlock) : nullptr};
    };
    const std::vector<KvBlockView> first = {view_of(memory[0]), view_of(memory[1])};
    const std::vector<KvBlockView> second = {view_of(memory[2])};
    const std::vector<KvSegment> segments = {{{0, 4}, 254, first}, {{4, 2}, 7, second}};
    Grid keys = Grid::random(random, 6, kHeads * kDim), values = Grid::random(random, 6, kHeads * kDim);
    Processor processor(2);
    processor.ops.append(segments, heads_of(keys, kHeads), has_values ? heads_of(values, kHeads) : Heads{});
    const auto expect = [&](Grid& block, std::uint32_t place, std::uint32_t row) {
      for (std::uint32_t head = 0; head < kHeads; ++head)
        for (std::uint32_t c = 0; c < kDim; ++c) {
          EXPECT_EQ(block.row(head * kAttentionBlock + place)[c], keys.row(row)[head * kDim + c]);
          const float value = block.row((kHeads + head) * kAttentionBlock + place)[c];
          if (has_values)
            EXPECT_EQ(value, values.row(row)[head * kDim + c]);
          else
            EXPECT_TRUE(std::isnan(value));
        }
    };
    expect(memory[0], 254, 0);
    expect(memory[0], 255, 1);
    expect(memory[1], 0, 2);
    expect(memory[1], 1, 3);
    expect(memory[2], 7, 4);
    expect(memory[2], 8, 5);
    EXPECT_TRUE(std::isnan(memory[0].row(253)[0]));
    EXPECT_TRUE(std::isnan(memory[1].row(2)[0]));
    EXPECT_TRUE(std::isnan(memory[2].row(9)[0]));
  }
}

}  // namespace
}  // namespace moeflux
