#include "ops/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/testing/expect_contract.h"
#include "kernels/scalar_tables.h"
#include "kernels/testing/grid.h"

namespace moeflux {
namespace {

using testing::ElementsAre;
using Ids = std::vector<std::uint32_t>;
using Floats = std::vector<float>;

struct Choice {
  Ids ids;
  Floats weights;
  bool chosen;
};

Choice softmax(const Floats& logits, std::size_t k) {
  Choice choice{Ids(k), Floats(k), false};
  Floats scratch(logits.size());
  choice.chosen = choose_softmax(kScalarRows, logits, scratch, choice.ids, choice.weights);
  return choice;
}

Choice grouped(const GroupedChoice& rule, const Floats& logits, const Floats& bias, std::size_t k) {
  Choice choice{Ids(k), Floats(k), false};
  Floats scratch(grouped_scratch(logits.size()));
  choice.chosen =
      choose_grouped_sigmoid(kScalarRows, rule, logits, bias, scratch, choice.ids, choice.weights);
  return choice;
}

// The k largest of `values` among `candidates`, by sorting.
Ids largest(const std::vector<double>& values, Ids candidates, std::size_t k) {
  std::sort(candidates.begin(), candidates.end(), [&](std::uint32_t a, std::uint32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  candidates.resize(k);
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

Ids all_of(std::size_t count) {
  Ids ids(count);
  std::iota(ids.begin(), ids.end(), 0u);
  return ids;
}

// Few distinct numbers, so that there are ties.
Floats coarse_logits(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Floats logits(count);
  for (float& logit : logits) logit = static_cast<float>(random() % 64) * 0.25f - 8.0f;
  return logits;
}

// ---- Softmax --------------------------------------------------------------------------------------------

TEST(SoftmaxRouter, ChoosesTheLargestWithWeightsThatSumToOne) {
  const Choice choice = softmax({0.5f, 3.0f, -1.0f, 2.0f, 2.5f}, 3);
  EXPECT_TRUE(choice.chosen);
  EXPECT_THAT(choice.ids, ElementsAre(1, 3, 4));
  const double sum = 1 + std::exp(-1.0) + std::exp(-0.5);
  EXPECT_NEAR(choice.weights[0], 1 / sum, 1e-6);
  EXPECT_NEAR(choice.weights[1], std::exp(-1.0) / sum, 1e-6);
  EXPECT_NEAR(choice.weights[2], std::exp(-0.5) / sum, 1e-6);
}

TEST(SoftmaxRouter, BreaksTiesInFavorOfTheLowerId) {
  EXPECT_THAT(softmax({1, 2, 2, 2, 1}, 2).ids, ElementsAre(1, 2));
  EXPECT_THAT(softmax({1, 1, 2, 1, 1}, 3).ids, ElementsAre(0, 1, 2));
  EXPECT_THAT(softmax({-0.0f, 0.0f, -0.0f}, 1).ids, ElementsAre(0)) << "zeros are equal";
}

TEST(SoftmaxRouter, GivesASingleExpertAllTheWeight) {
  const Choice choice = softmax({-70, 5, 4}, 1);
  EXPECT_THAT(choice.ids, ElementsAre(1));
  EXPECT_THAT(choice.weights, ElementsAre(1.0f));
}

TEST(SoftmaxRouter, MayChooseEveryExpert) {
  const Choice choice = softmax({3, 1, 2}, 3);
  EXPECT_THAT(choice.ids, ElementsAre(0, 1, 2));
  EXPECT_NEAR(std::accumulate(choice.weights.begin(), choice.weights.end(), 0.0f), 1, 1e-6);
}

TEST(SoftmaxRouter, AcceptsLogitsOfAnyFiniteSize) {
  const float huge = std::numeric_limits<float>::max();
  const Choice choice = softmax({huge, -huge, huge, 0}, 3);
  EXPECT_TRUE(choice.chosen);
  EXPECT_THAT(choice.ids, ElementsAre(0, 2, 3));
  EXPECT_THAT(choice.weights, ElementsAre(0.5f, 0.5f, 0.0f));
}

TEST(SoftmaxRouter, RejectsNonFiniteInput) {
  for (const float broken : {NAN, HUGE_VALF, -HUGE_VALF})
    for (std::size_t at = 0; at < 3; ++at) {
      Floats logits = {1, 2, 3};
      logits[at] = broken;
      EXPECT_FALSE(softmax(logits, 2).chosen) << broken << " at " << at;
    }
}

void expect_softmax_of(const Floats& logits, std::size_t k) {
  const Choice choice = softmax(logits, k);
  ASSERT_TRUE(choice.chosen);
  const std::vector<double> values(logits.begin(), logits.end());
  EXPECT_EQ(choice.ids, largest(values, all_of(logits.size()), k));
  const double max = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const std::uint32_t id : choice.ids) sum += std::exp(values[id] - max);
  // k + 10 roundings: of the exponential and the difference, of a sum of k, and of the quotient. A tiny
  // weight has a larger relative error.
  for (std::size_t i = 0; i < k; ++i)
    EXPECT_NEAR(choice.weights[i], std::exp(values[choice.ids[i]] - max) / sum,
                static_cast<double>(k + 10) * 0x1p-24);
}

TEST(SoftmaxRouter, ChoosesTwentyOf397) { expect_softmax_of(coarse_logits(397, 1), 20); }

TEST(SoftmaxRouter, ChoosesFromTheMostExpertsOfAModel) {
  expect_softmax_of(coarse_logits(65536, 2), 65536);
  expect_softmax_of(coarse_logits(65536, 3), 30000);
}

RC_GTEST_PROP(SoftmaxRouter, MatchesSorting, (std::uint32_t seed)) {
  const std::size_t experts = *rc::gen::inRange<std::size_t>(1, 200);
  expect_softmax_of(coarse_logits(experts, seed), *rc::gen::inRange<std::size_t>(1, experts + 1));
  RC_ASSERT(!testing::Test::HasFailure());
}

TEST(SoftmaxRouter, ChecksItsPreconditions) {
  EXPECT_CONTRACT((void)softmax({1, 2}, 3), "a router chooses 1 to all of its experts");
  EXPECT_CONTRACT((void)softmax({1, 2}, 0), "a router chooses 1 to all of its experts");
}

// ---- Grouped sigmoid ------------------------------------------------------------------------------------

TEST(GroupedRouter, AgreesWithTheWorkedExample) {
  const Choice choice = grouped({.groups = 2, .groups_kept = 1, .normalise = true, .scale = 2.5f},
                                {3, -2, 1, -1, -3, 2, 0, 4}, {.1f, .2f, -.3f, 0, 0, .4f, -.1f, .05f}, 2);
  EXPECT_TRUE(choice.chosen);
  EXPECT_THAT(choice.ids, ElementsAre(5, 7));
  // The example gives the weights as 1.1822 and 1.3178, from sigmoids of four digits.
  const double second = 1 / (1 + std::exp(-2.0)), fourth = 1 / (1 + std::exp(-4.0));
  EXPECT_NEAR(choice.weights[0], 2.5 * second / (second + fourth), 1e-6);
  EXPECT_NEAR(choice.weights[1], 2.5 * fourth / (second + fourth), 1e-6);
  EXPECT_NEAR(choice.weights[0], 1.1822, 2e-4);
  EXPECT_NEAR(choice.weights[1], 1.3178, 2e-4);
}

TEST(GroupedRouter, ChoosesByBiasedScoreAndWeighsByPlainScore) {
  const Choice choice =
      grouped({.groups = 1, .groups_kept = 1, .normalise = false, .scale = 2}, {0, 0, 0}, {0, 1, -1}, 2);
  EXPECT_THAT(choice.ids, ElementsAre(0, 1));
  EXPECT_THAT(choice.weights, ElementsAre(1.0f, 1.0f));
}

TEST(GroupedRouter, NeverChoosesFromADroppedGroup) {
  // The second group has the best expert, the first one the better pair; all other scores are negative.
  const Choice choice =
      grouped({.groups = 2, .groups_kept = 1}, {0, 0, 0, 0, 0, 0}, {.1f, .1f, -9, .4f, -8, -8}, 3);
  EXPECT_THAT(choice.ids, ElementsAre(0, 1, 2));
}

TEST(GroupedRouter, BreaksTiesInFavorOfLowerGroupsAndIds) {
  const Choice choice = grouped({.groups = 3, .groups_kept = 2}, Floats(6, 0.5f), Floats(6, 0), 3);
  EXPECT_THAT(choice.ids, ElementsAre(0, 1, 2));
  EXPECT_THAT(grouped({.groups = 3, .groups_kept = 1}, {0, 0, 1, 1, 1, 1}, Floats(6, 0), 1).ids,
              ElementsAre(2));
}

TEST(GroupedRouter, ScoresAGroupOfOneExpertByItself) {
  const Choice choice = grouped({.groups = 4, .groups_kept = 2}, {1, 4, 2, 3}, Floats(4, 0), 2);
  EXPECT_THAT(choice.ids, ElementsAre(1, 3));
}

TEST(GroupedRouter, GivesZeroWeightsIfAllSigmoidsAreZero) {
  // All sigmoids are zero, so their sum is, and the weights must not be NaN.
  const Choice choice = grouped({}, {-200, -300}, {0, 0}, 2);
  EXPECT_TRUE(choice.chosen);
  EXPECT_THAT(choice.weights, ElementsAre(0.0f, 0.0f));
}

TEST(GroupedRouter, RejectsNonFiniteInput) {
  for (const float broken : {NAN, HUGE_VALF, -HUGE_VALF})
    for (std::size_t at = 0; at < 4; ++at) {
      Floats logits = {1, 2, 3, 4}, bias = {0, 0, 0, 0};
      logits[at] = broken;
      EXPECT_FALSE(grouped({.groups = 2}, logits, bias, 1).chosen) << broken << " at " << at;
      std::swap(logits[at], bias[at]);
      EXPECT_FALSE(grouped({.groups = 2}, logits, bias, 1).chosen) << "bias " << broken << " at " << at;
    }
}

TEST(GroupedRouter, MayKeepAllGroupsAndChooseAllExperts) {
  const Choice choice = grouped({.groups = 2, .groups_kept = 2}, {1, 2, 3, 4}, {4, 3, 2, 1}, 4);
  EXPECT_THAT(choice.ids, ElementsAre(0, 1, 2, 3));
  EXPECT_NEAR(std::accumulate(choice.weights.begin(), choice.weights.end(), 0.0f), 1, 1e-6);
}

RC_GTEST_PROP(GroupedRouter, MatchesSorting, (std::uint32_t seed)) {
  const std::uint32_t groups = *rc::gen::inRange(1u, 10u), kept = *rc::gen::inRange(1u, groups + 1);
  const std::size_t size = *rc::gen::inRange<std::size_t>(1, 20);
  const std::size_t k = *rc::gen::inRange<std::size_t>(1, size * kept + 1);
  const Floats logits = coarse_logits(groups * size, seed);
  Floats bias = coarse_logits(groups * size, seed ^ 1);
  for (float& number : bias) number *= 0.125f;
  const Choice choice = grouped({groups, kept, false, 1}, logits, bias, k);
  RC_ASSERT(choice.chosen);

  Floats scores(logits.size());
  kScalarRows.sigmoid(logits.data(), static_cast<std::uint32_t>(logits.size()), scores.data());
  std::vector<double> biased, group_scores;
  for (std::size_t i = 0; i < scores.size(); ++i) biased.push_back(scores[i] + bias[i]);
  for (std::size_t g = 0; g < groups; ++g) {
    Floats group(biased.begin() + static_cast<std::ptrdiff_t>(g * size),
                 biased.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(group.rbegin(), group.rend());
    group_scores.push_back(size == 1 ? group[0] : group[0] + group[1]);
  }
  Ids candidates;
  for (const std::uint32_t group : largest(group_scores, all_of(groups), kept))
    for (std::size_t i = 0; i < size; ++i) candidates.push_back(static_cast<std::uint32_t>(group * size + i));
  RC_ASSERT(choice.ids == largest(biased, candidates, k));
  for (std::size_t i = 0; i < k; ++i) RC_ASSERT(choice.weights[i] == scores[choice.ids[i]]);
}

TEST(GroupedRouter, ChecksItsPreconditions) {
  EXPECT_CONTRACT((void)grouped({.groups = 2}, {1, 2, 3}, {0, 0, 0}, 1), "groups are equally large");
  EXPECT_CONTRACT((void)grouped({.groups = 2, .groups_kept = 3}, {1, 2}, {0, 0}, 1),
                  "1 to all groups are kept");
  EXPECT_CONTRACT((void)grouped({.groups = 2}, {1, 2, 3, 4}, {0, 0, 0, 0}, 3),
                  "a router chooses 1 to all of the experts of the groups that it keeps");
  EXPECT_CONTRACT((void)grouped({}, {1, 2}, {0}, 1), "every expert has a bias");
}

class RouterOnEveryIsa : public test::OnEveryIsa {};
INSTANTIATE_TEST_SUITE_P(, RouterOnEveryIsa, testing::ValuesIn(compiled_kernels()), test::isa_name);

TEST_P(RouterOnEveryIsa, GivesTheSameWeights) {
  const Floats logits = coarse_logits(256, 4), bias = coarse_logits(256, 5);
  const GroupedChoice rule{.groups = 8, .groups_kept = 4, .normalise = true, .scale = 2.5f};
  Ids ids(8);
  Floats weights(8), scratch(grouped_scratch(256));
  ASSERT_TRUE(choose_softmax(*GetParam()->rows, logits, scratch, ids, weights));
  EXPECT_EQ(ids, softmax(logits, 8).ids);
  EXPECT_EQ(weights, softmax(logits, 8).weights);
  ASSERT_TRUE(choose_grouped_sigmoid(*GetParam()->rows, rule, logits, bias, scratch, ids, weights));
  EXPECT_EQ(ids, grouped(rule, logits, bias, 8).ids);
  EXPECT_EQ(weights, grouped(rule, logits, bias, 8).weights);
}

}  // namespace
}  // namespace moeflux
