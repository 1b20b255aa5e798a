// The experts of Ops: their products, and the order in which their outputs are added.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/testing/grid.h"
#include "ops/ops.h"
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

constexpr AffineFormat kExpertFormat{4, 64, Dtype::bf16};
constexpr Precision kBothPrecisions[] = {Precision::exact, Precision::fast};

class ExpertOpsOnEveryIsa : public test::OnEveryIsa {};
INSTANTIATE_TEST_SUITE_P(, ExpertOpsOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);
// A batch, its experts, and the weights of its visits.
struct Visits {
  static constexpr std::uint32_t kDim = 128, kHidden = 72, kPerToken = 3;

  struct Expert {
    RandomMatrix gate, up, down;
    std::vector<std::uint32_t> rows, places;  // places: row * kPerToken + k
    std::vector<ExpertShare> shares;
  };

  Visits(std::uint32_t row_count, std::uint32_t expert_count, std::uint32_t seed)
      : random(seed), x(Grid::random(random, row_count, kDim, 9)) {
    const Encoding wide = kExpertFormat,
                   narrow = PlainFormat{Dtype::bf16};  // 72 columns are not whole groups
    for (std::uint32_t e = 0; e < expert_count; ++e)
      experts.push_back({RandomMatrix(kHidden, kDim, wide, random),
                         RandomMatrix(kHidden, kDim, wide, random),
                         RandomMatrix(kDim, kHidden, narrow, random),
                         {},
                         {},
                         {}});
    for (std::uint32_t row = 0; row < row_count; ++row) {
      std::vector<std::uint32_t> ids(expert_count);
      for (std::uint32_t e = 0; e < expert_count; ++e) ids[e] = e;
      std::shuffle(ids.begin(), ids.end(), random);
      std::sort(ids.begin(), ids.begin() + kPerToken);
      const auto group = [&](std::uint32_t k) { return expert_group(ids[k], expert_count); };
      for (std::uint32_t k = 0; k < kPerToken; ++k) {
        Expert& expert = experts[ids[k]];
        expert.rows.push_back(row);
        expert.places.push_back(row * kPerToken + k);
        expert.shares.push_back({0.5f + 0.4f * random_number(random), k == 0 || group(k - 1) != group(k),
                                 k + 1 == kPerToken || group(k + 1) != group(k)});
      }
    }
  }

  ExpertVisit visit(const Expert& expert, std::uint32_t first_partial) const {
    return {expert.gate.tiled(), expert.up.tiled(), expert.down.tiled(),
            expert.rows,         expert.shares,     first_partial};
  }

  // The law in plain loops, over the outputs of the experts.
  Grid sum_of_groups(CpuOps& ops) {
    const Ops::Scope scope(ops);
    const Input input = ops.prepare(rows_of(x));
    Grid y(x.rows(), kDim, 1);
    ops.clear(rows_of(y));
    const auto expert_count = static_cast<std::uint32_t>(experts.size());
    for (std::uint32_t group = 0; group < kExpertGroups; ++group) {
      Grid sum(x.rows(), kDim);
      ops.clear(rows_of(sum));
      for (std::uint32_t e = 0; e < expert_count; ++e) {
        const Expert& expert = experts[e];
        if (expert_group(e, expert_count) != group || expert.rows.empty()) continue;
        Grid output(expert.rows.size(), kDim);
        const ExpertVisit one = visit(expert, 0);
        ops.visit({&one, 1}, input, rows_of(output));
        for (std::size_t i = 0; i < expert.rows.size(); ++i)
          for (std::uint32_t c = 0; c < kDim; ++c) {
            float& to = sum.row(expert.rows[i])[c];
            to = std::fma(expert.shares[i].weight, output.row(i)[c], to);
          }
      }
      for (std::size_t row = 0; row < x.rows(); ++row)
        for (std::uint32_t c = 0; c < kDim; ++c) y.row(row)[c] = y.row(row)[c] + sum.row(row)[c];
    }
    return y;
  }

  // Visits experts in the order of `ids`, `at_once` per call, and combines the outputs.
  Grid visit_and_combine(CpuOps& ops, std::span<const std::uint32_t> ids, std::size_t at_once) {
    const Ops::Scope scope(ops);
    const Input input = ops.prepare(rows_of(x));
    const std::size_t choices = x.rows() * kPerToken;
    const Rows partials = ops.take(static_cast<std::uint32_t>(choices), kDim);
    std::vector<std::uint32_t> partial_of(choices);
    std::vector<ExpertShare> shares(choices);
    std::vector<ExpertVisit> visits;
    std::uint32_t first = 0;
    for (const std::uint32_t id : ids) {
      const Expert& expert = experts[id];
      for (std::size_t i = 0; i < expert.rows.size(); ++i) {
        partial_of[expert.places[i]] = first + static_cast<std::uint32_t>(i);
        shares[expert.places[i]] = expert.shares[i];
      }
      if (!expert.rows.empty()) visits.push_back(visit(expert, first));
      first += static_cast<std::uint32_t>(expert.rows.size());
    }
    for (std::size_t i = 0; i < visits.size(); i += at_once)
      ops.visit(std::span(visits).subspan(i, std::min(at_once, visits.size() - i)), input, partials);
    Grid y(x.rows(), kDim, 1);
    ops.combine(partials, partial_of, shares, kPerToken, rows_of(y));
    return y;
  }

  // Visits experts in ascending order, `at_once` per call.
  Grid visit_adding(CpuOps& ops, std::size_t at_once) {
    const Ops::Scope scope(ops);
    const Input input = ops.prepare(rows_of(x));
    Grid y(x.rows(), kDim, 1), sums(x.rows(), kDim, 1);
    ops.clear(rows_of(y));
    std::vector<ExpertVisit> visits;
    for (const Expert& expert : experts)
      if (!expert.rows.empty()) visits.push_back(visit(expert, 0));
    for (std::size_t i = 0; i < visits.size(); i += at_once)
      ops.visit_adding(std::span(visits).subspan(i, std::min(at_once, visits.size() - i)), input,
                       rows_of(sums), rows_of(y));
    return y;
  }

  Random random;
  Grid x;
  std::vector<Expert> experts;
};

// Fewer experts than groups, and groups of one to three experts.
TEST_P(ExpertOpsOnEveryIsa, ExpertsGiveTheSameBitsCombinedOrAdded) {
  for (const Precision precision : kBothPrecisions)
    for (const auto& [rows, experts] : {std::pair(1u, 7u), {5u, 7u}, {17u, 7u}, {6u, 20u}}) {
      Visits visits(rows, experts, 9);
      std::vector<std::uint32_t> ids(experts);
      std::iota(ids.begin(), ids.end(), 0u);
      Processor reference(1, scalar(), precision);
      const Grid expected = visits.sum_of_groups(reference.ops);
      for (const unsigned threads : {1u, 2u}) {
        Processor processor(threads, *GetParam(), precision);
        for (const std::size_t at_once : {1u, 2u, 3u, 7u}) {
          EXPECT_TRUE(same_bits(visits.visit_adding(processor.ops, at_once), expected))
              << rows << " rows, " << at_once << " at once, " << threads << " threads";
          std::shuffle(ids.begin(), ids.end(), visits.random);
          EXPECT_TRUE(same_bits(visits.visit_and_combine(processor.ops, ids, at_once), expected))
              << rows << " rows, " << at_once << " at once, " << threads << " threads";
        }
      }
    }
}

TEST(ExpertGroups, AreEightRunsOfNeighboringIds) {
  for (const std::uint32_t experts : {1u, 5u, 8u, 20u, 256u, 397u}) {
    std::vector<std::uint32_t> sizes(kExpertGroups);
    for (std::uint32_t e = 0; e < experts; ++e) {
      ++sizes.at(expert_group(e, experts));
      EXPECT_LE(expert_group(e, experts), expert_group(e + 1, experts));
    }
    const auto [least, most] = std::ranges::minmax(sizes);
    EXPECT_LE(most - least, 1u) << experts;
  }
}

TEST(CpuOps, CountsMatricesAndExperts) {
  Random random(10);
  Processor processor(1);
  const RandomMatrix matrix(32, 64, kExpertFormat, random);
  Grid one = Grid::random(random, 9, 64), x = Grid::random(random, 9, 128), y(9, 32);
  const Ops::Scope scope(processor.ops);
  processor.ops.matmul(matrix.tiled(), processor.ops.prepare(rows_of(one)), rows_of(y));
  EXPECT_EQ(processor.ops.counters(), (OpsCounters{.matrix_calls = 1}));
  processor.ops.head_matmul(test::consecutive_heads(matrix.tiled(), 2, 16), heads_of(x, 2), heads_of(y, 2));
  EXPECT_EQ(processor.ops.counters(), (OpsCounters{.matrix_calls = 2}));
  Visits visits(9, 4, 11);
  const std::vector<std::uint32_t> ids = {0, 1, 2, 3};
  visits.visit_and_combine(processor.ops, ids, 4);
  EXPECT_EQ(processor.ops.counters(), (OpsCounters{.matrix_calls = 2, .expert_visits = 4}));
  visits.visit_adding(processor.ops, 2);
  EXPECT_EQ(processor.ops.counters(), (OpsCounters{.matrix_calls = 2, .expert_visits = 8}));
}

}  // namespace
}  // namespace moeflux
