// The composite operations of CpuOps give the bits of the sequences that define them.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/testing/processor.h"
#include "quant/testing/random_matrix.h"

namespace moeflux {
namespace {

using test::Grid;
using test::heads_of;
using test::Processor;
using test::Random;
using test::rows_of;
using test::same_bits;
using test::scalar;

class CompositeOpsOnEveryIsa : public test::OnEveryIsa {};
INSTANTIATE_TEST_SUITE_P(, CompositeOpsOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

// Everything that a prepared input holds, as bytes.
std::vector<std::byte> bytes_of(const Input& input) {
  std::vector<std::byte> all;
  const auto add = [&](const void* data, std::size_t size) {
    const auto* const bytes = static_cast<const std::byte*>(data);
    all.insert(all.end(), bytes, bytes + size);
  };
  const auto add_rows = [&](const Rows& rows) {
    for (std::uint32_t row = 0; rows.data != nullptr && row < rows.count; ++row)
      add(rows.row(row), rows.cols * sizeof(float));
  };
  const auto add_codes = [&](const std::int8_t* codes) {
    for (std::uint32_t row = 0; codes != nullptr && row < input.x.count; ++row)
      add(codes + row * input.bytes.stride, input.x.cols);
  };
  add_rows(input.x);
  add_rows(input.sums);
  add_rows(input.bytes.scales);
  add_rows(input.bytes.sums);
  add_rows(input.bytes.fine_sums);
  add_codes(input.bytes.codes);
  add_codes(input.bytes.fine);
  return all;
}

constexpr Precision kBothWays[] = {Precision::exact, Precision::fast};

TEST_P(CompositeOpsOnEveryIsa, NormAndPrepareIsANormAndAPreparation) {
  Random random(1);
  for (const Precision precision : kBothWays)
    for (const std::uint32_t cols : {192u, 96u, 70u})
      for (const Rounding finest : {Rounding::coarse, Rounding::fine}) {
        Grid x = Grid::random(random, 5, cols, 3);
        const Grid weight = Grid::random(random, 1, cols);
        Processor processor(2, *GetParam(), precision);
        const Ops::Scope scope(processor.ops);
        Grid found(5, cols), expected(5, cols);
        const std::span<const float> norm(weight.data(), cols);
        const Input one = processor.ops.norm_and_prepare(rows_of(x), norm, 1e-6f, finest, rows_of(found));
        const Input other =
            processor.ops.Ops::norm_and_prepare(rows_of(x), norm, 1e-6f, finest, rows_of(expected));
        EXPECT_EQ(bytes_of(one), bytes_of(other)) << cols << " columns, " << name_of(precision);
      }
}

// Sessions of one row or more, each with recurrent states before and after a step.
struct DeltaCase {
  DeltaRuleShape shape;
  std::vector<std::uint32_t> rows;  // by session
};

struct DeltaStates {
  std::vector<std::vector<float>> before, after;
  DeltaStates(std::size_t sessions, std::size_t size, Random& random) {
    for (std::size_t i = 0; i < sessions; ++i) {
      before.emplace_back(size);
      std::ranges::generate(before.back(), [&] { return random_number(random); });
      after.emplace_back(size);
    }
  }
};

TEST_P(CompositeOpsOnEveryIsa, MixDeltaIsItsSequence) {
  constexpr std::uint32_t kWidth = 4;
  const DeltaCase cases[] = {
      {{2, 4, 24, 64}, {1}},        {{2, 4, 24, 64}, {1, 1, 1, 1, 1}}, {{16, 32, 16, 128}, {1, 1}},
      {{3, 3, 32, 192}, {1, 1, 1}}, {{2, 4, 24, 64}, {1, 5, 1}},       {{2, 4, 24, 20}, {1, 1}},
      {{1, 20, 16, 64}, {1, 1}},
  };
  Random random(2);
  for (const Precision precision : kBothWays)
    for (const DeltaCase& given : cases) {
      const DeltaRuleShape& shape = given.shape;
      std::uint32_t rows = 0;
      for (const std::uint32_t count : given.rows) rows += count;
      const Grid qkv = Grid::random(random, rows, shape.channels(), 1),
                 gate = Grid::random(random, rows, shape.all_values(), 2),
                 a = Grid::random(random, rows, shape.value_heads, 1),
                 b = Grid::random(random, rows, shape.value_heads, 3),
                 weight = Grid::random(random, shape.channels(), kWidth),
                 heads = Grid::random(random, 2, shape.value_heads),
                 norm = Grid::random(random, 1, shape.value_dim);
      DeltaStates conv(given.rows.size(), (kWidth - 1) * shape.channels(), random);
      DeltaStates delta(given.rows.size(), std::size_t{shape.value_heads} * shape.key_dim * shape.value_dim,
                        random);
      const DeltaMix mix{.shape = shape,
                         .conv_weight = {weight.data(), std::size_t{shape.channels()} * kWidth},
                         .conv_width = kWidth,
                         .rate = {heads.row(0), shape.value_heads},
                         .dt_bias = {heads.row(1), shape.value_heads},
                         .unit_eps = 1e-6f,
                         .query_scale = 0.2f,
                         .norm = {norm.data(), shape.value_dim},
                         .norm_eps = 1e-6f};
      const auto run = [&](CpuOps& ops, bool is_sequence) {
        std::vector<RecurrentSegment> conv_states, delta_states;
        std::uint32_t first = 0;
        for (std::size_t i = 0; i < given.rows.size(); first += given.rows[i++]) {
          std::ranges::fill(conv.after[i], -7.0f);
          std::ranges::fill(delta.after[i], -7.0f);
          conv_states.push_back({{first, given.rows[i]}, conv.before[i].data(), conv.after[i].data()});
          delta_states.push_back({{first, given.rows[i]}, delta.before[i].data(), delta.after[i].data()});
        }
        const Ops::Scope scope(ops);
        Grid q = qkv, g = gate, decay = a, beta = b;
        const auto mixed = [&] {
          return is_sequence ? ops.Ops::mix_delta(mix, conv_states, delta_states, rows_of(q), rows_of(g),
                                                  rows_of(decay), rows_of(beta))
                             : ops.mix_delta(mix, conv_states, delta_states, rows_of(q), rows_of(g),
                                             rows_of(decay), rows_of(beta));
        };
        return bytes_of(mixed());
      };
      Processor alone(1, scalar(), precision);
      const std::vector<std::byte> expected = run(alone.ops, true);
      const auto expected_conv = conv.after, expected_delta = delta.after;
      for (const unsigned threads : {1u, 2u, 3u}) {
        Processor processor(threads, *GetParam(), precision);
        EXPECT_EQ(run(processor.ops, false), expected) << rows << " rows, " << threads << " threads";
        EXPECT_EQ(conv.after, expected_conv);
        EXPECT_EQ(delta.after, expected_delta);
      }
    }
}

struct AttentionMixCase {
  std::uint32_t heads, kv_heads, dim;
  std::vector<SegmentRows> sessions;  // first_row: the position
  KvDtype dtype = KvDtype::f32;
};

// Random inputs of mix_attention, and what it makes of them.
class AttentionMixing {
 public:
  AttentionMixing(const AttentionMixCase& given, Random& random) : given_(given) {
    for (const SegmentRows& session : given.sessions) {
      rows_ += session.rows;
      std::vector<Grid>& blocks = memory_.emplace_back();
      for (std::uint32_t first = 0; first < session.first_row + session.rows; first += kAttentionBlock)
        blocks.push_back(
            finite(Grid::random(random, 2, std::size_t{given.kv_heads} * kAttentionBlock * given.dim)));
    }
    queries_ = Grid::random(random, rows_, given.heads * given.dim, 5);
    gates_ = Grid::random(random, rows_, given.heads * given.dim);
    keys_ = Grid::random(random, rows_, given.kv_heads * given.dim, 1);
    values_ = Grid::random(random, rows_, given.kv_heads * given.dim, 2);
    norms_ = Grid::random(random, 2, given.dim);
    angles_ = Grid::random(random, 2 * rows_, kRopePairs);
  }

  std::uint32_t rows() const { return rows_; }

  // The result and the stored keys and values.
  std::vector<std::byte> run(CpuOps& ops, bool is_sequence) {
    auto stored = memory_;
    std::vector<std::vector<KvBlockView>> views;
    std::vector<KvSegment> segments;
    std::uint32_t first = 0;
    for (std::size_t i = 0; i < stored.size(); first += given_.sessions[i++].rows) {
      std::vector<KvBlockView>& of_session = views.emplace_back();
      for (Grid& block : stored[i]) of_session.push_back({block.row(0), block.row(1)});
      const SegmentRows& session = given_.sessions[i];
      segments.push_back({{first, session.rows}, session.first_row, of_session, given_.dtype});
    }
    const AttentionMix mix{.shape = {given_.heads, given_.kv_heads, given_.dim, given_.dim, 0.1f},
                           .query_norm = {norms_.row(0), given_.dim},
                           .key_norm = {norms_.row(1), given_.dim},
                           .norm_eps = 1e-6f,
                           .rope_dims = 2 * kRopePairs,
                           .pairing = RopePairing::half_split};
    const RopeTable table{rows_of(angles_).some(0, rows_), rows_of(angles_).some(rows_, rows_)};
    const Ops::Scope scope(ops);
    Grid q = queries_, g = gates_, k = keys_, v = values_;
    const Heads queries = heads_of(q, given_.heads), gates = heads_of(g, given_.heads),
                keys = heads_of(k, given_.kv_heads), values = heads_of(v, given_.kv_heads);
    const Input mixed = is_sequence
                            ? ops.Ops::mix_attention(mix, segments, table, queries, gates, keys, values)
                            : ops.mix_attention(mix, segments, table, queries, gates, keys, values);
    std::vector<std::byte> result = bytes_of(mixed);
    for (const auto& blocks : stored)
      for (const Grid& block : blocks) {
        const auto* const bytes = reinterpret_cast<const std::byte*>(block.data());
        result.insert(result.end(), bytes, bytes + 2 * block.stride() * sizeof(float));
      }
    return result;
  }

 private:
  static constexpr std::uint32_t kRopePairs = 8;

  // The low half of a random float may be a bf16 that is NaN, and the law does not say which NaN a sum is.
  Grid finite(Grid numbers) const {
    if (given_.dtype != KvDtype::bf16) return numbers;
    for (std::size_t row = 0; row < numbers.rows(); ++row)
      for (std::size_t i = 0; i < numbers.cols(); ++i) {
        const auto word = std::bit_cast<std::uint32_t>(numbers.row(row)[i]);
        numbers.row(row)[i] = std::bit_cast<float>((word & 0xffff0000u) | word >> 16);
      }
    return numbers;
  }

  const AttentionMixCase& given_;
  std::uint32_t rows_ = 0;
  std::vector<std::vector<Grid>> memory_;  // [session][block]: keys, then values
  Grid queries_{0, 0}, gates_{0, 0}, keys_{0, 0}, values_{0, 0}, norms_{0, 0}, angles_{0, 0};
};

TEST_P(CompositeOpsOnEveryIsa, MixAttentionIsItsSequence) {
  const AttentionMixCase cases[] = {
      {4, 2, 64, {{0, 1}}},
      {4, 2, 64, {{300, 1}, {0, 1}, {511, 1}, {255, 2}}},
      {4, 1, 128, {{250, 40}, {600, 1}}, KvDtype::int8},
      {18, 1, 64, {{700, 1}, {3, 1}}, KvDtype::bf16},
      {4, 2, 40, {{260, 1}, {0, 3}}},  // heads that are not whole groups
  };
  Random random(3);
  for (const Precision precision : kBothWays)
    for (const AttentionMixCase& given : cases) {
      AttentionMixing mixing(given, random);
      Processor alone(1, scalar(), precision);
      const std::vector<std::byte> expected = mixing.run(alone.ops, true);
      for (const unsigned threads : {1u, 2u, 5u}) {
        Processor processor(threads, *GetParam(), precision);
        EXPECT_TRUE(mixing.run(processor.ops, false) == expected)
            << given.heads << " heads of " << given.dim << ", " << mixing.rows() << " rows, " << threads
            << " threads";
      }
    }
}

}  // namespace
}  // namespace moeflux
