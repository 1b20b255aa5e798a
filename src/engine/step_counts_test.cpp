// The work of a step, counted rather than timed.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "engine/testing/test_models.h"

namespace moeflux {
namespace {

// The matrices that every token is multiplied by: all but the embedding, which is a lookup. Latent attention
// splits its key and value projection in two.
std::uint64_t resident_matrices(const ModelConfig& config) {
  std::uint64_t count = 0;
  for (const TensorShape& tensor : resident_tensors(config, true))
    if (!tensor.is_vector && tensor.name != "embed_tokens") ++count;
  return count;
}

std::uint64_t moe_layers(const ModelConfig& config) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      config.layers, [](const LayerConfig& layer) { return std::holds_alternative<MoeConfig>(layer.mlp); }));
}

using CountsOf = OnSmallModels;
INSTANTIATE_TEST_SUITE_P(, CountsOf, testing::Values("qwen", "deepseek"),
                         [](const auto& name) { return std::string(name.param); });

TEST(ResidentMatrices, AreCountedByKindOfLayer) {
  // Matrices: DeltaNet 5, attention 4, latent attention 6; MoE 4, and 1 for a gate; dense MLP 3; the head 1.
  EXPECT_EQ(resident_matrices(small_qwen()), 3u * (5 + 5) + 2 * (4 + 5) + 1);
  EXPECT_EQ(resident_matrices(small_deepseek()), 1u * (6 + 3) + 2 * (6 + 4) + 1);
}

TEST_P(CountsOf, A512TokenPromptMultipliesEachMatrixOnceAndFetchesOncePerLayer) {
  const auto engine = model.open({.threads = 2, .step_rows = 512});
  Session session = new_session(*engine);
  const Tokens tokens = random_tokens(*engine, 512);
  ChoiceObserver observer;
  Logits logits(config.vocabulary);
  const StepStatistics counts =
      step(*engine, {{&session, tokens, WantedLogits::last, logits}}, {.observer = &observer});
  EXPECT_EQ(counts, (StepStatistics{.rows = 512,
                                    .matrix_calls = resident_matrices(config),
                                    .fetches = moe_layers(config),
                                    .experts_served = observer.distinct(),
                                    .expert_visits = observer.distinct(),
                                    .experts = {},
                                    .took = {}}));
}

TEST_P(CountsOf, AStepWithoutLogitsSkipsTheHead) {
  const auto engine = model.open();
  Session session = new_session(*engine);
  const Tokens tokens = random_tokens(*engine, 9);
  EXPECT_EQ(step(*engine, {{&session, tokens, WantedLogits::none, {}}}).matrix_calls,
            resident_matrices(config) - 1);
}

// Logits are computed 64 rows at a time, so only the head is multiplied more than once.
TEST_P(CountsOf, LogitsOfManyRowsMultiplyTheHeadOncePer64Rows) {
  const auto engine = model.open();
  for (const std::uint32_t rows : {63u, 64u, 65u, 130u}) {
    Session session = new_session(*engine);
    const Tokens tokens = random_tokens(*engine, rows);
    Logits logits(std::size_t{rows} * config.vocabulary);
    EXPECT_EQ(step(*engine, {{&session, tokens, WantedLogits::all, logits}}).matrix_calls,
              resident_matrices(config) - 1 + (rows + 63) / 64);
  }
}

TEST_P(CountsOf, AStepOf8SessionsMakesNoMoreCallsThanAStepOf1) {
  const auto engine = model.open({.threads = 2});
  std::vector<Session> sessions;
  std::vector<Logits> logits(8, Logits(config.vocabulary));
  for (std::uint32_t i = 0; i < 8; ++i) {
    sessions.push_back(new_session(*engine));
    logits_after(sessions.back(), random_tokens(*engine, 3 + i, i));  // each at another position
  }
  const Tokens next = random_tokens(*engine, 8, 99);
  const auto batch_of = [&](std::size_t count, ChoiceObserver& observer) {
    std::vector<Segment> batch;
    for (std::size_t i = 0; i < count; ++i)
      batch.push_back({&sessions[i], {&next[i], 1}, WantedLogits::last, logits[i]});
    return step(*engine, batch, {.observer = &observer});
  };
  ChoiceObserver of_one, of_eight;
  const StepStatistics one = batch_of(1, of_one);
  const StepStatistics eight = batch_of(8, of_eight);
  EXPECT_EQ(one.matrix_calls, resident_matrices(config));
  EXPECT_EQ(eight.matrix_calls, one.matrix_calls);
  EXPECT_EQ(eight.fetches, one.fetches);
  EXPECT_EQ(eight.rows, 8u);
  // Each expert is served once per layer, however many rows chose it, and some rows did choose the same.
  EXPECT_EQ(one.experts_served, of_one.distinct());
  EXPECT_EQ(eight.experts_served, of_eight.distinct());
  EXPECT_EQ(eight.expert_visits, of_eight.distinct());
  std::size_t choices = 0;
  for (const ChoiceObserver::Layer& layer : of_eight.layers) choices += layer.experts.size();
  EXPECT_LT(of_eight.distinct(), choices);
  EXPECT_EQ(of_eight.layers.size(), moe_layers(config));
}

TEST_P(CountsOf, ExtendAddsUpItsSteps) {
  const auto engine = model.open({.threads = 1, .step_rows = 16});
  Session session = new_session(*engine);
  const Tokens tokens = random_tokens(*engine, 40);
  Logits logits(config.vocabulary);
  const Result<StepStatistics> counts = session.extend(tokens, logits);
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts->rows, 40u);
  EXPECT_EQ(counts->matrix_calls, 3 * (resident_matrices(config) - 1) + 1);
  EXPECT_EQ(counts->fetches, 3 * moe_layers(config));
}

TEST_P(CountsOf, SixHundredDecodeStepsAllocateNothing) {
  for (const unsigned threads : {1u, 2u}) {
    const auto engine = model.open({.threads = threads, .context = 1024, .step_rows = 8});
    Session session = new_session(*engine);
    const Tokens tokens = random_tokens(*engine, 601);
    Logits logits(config.vocabulary);
    step(*engine, {{&session, {&tokens[0], 1}, WantedLogits::last, logits}});
    const AllocationCounter counter;
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      const Segment segment{&session, {&tokens[i], 1}, WantedLogits::last, logits};
      ASSERT_TRUE(engine->step({&segment, 1}));
    }
    EXPECT_EQ(counter.allocations(), 0u) << threads << " threads";
    EXPECT_EQ(session.position(), 601u);  // past the blocks that begin at 256 and 512
  }
}

TEST_P(CountsOf, APromptAllocatesNothing) {
  const auto engine = model.open({.threads = 2, .context = 1024, .step_rows = 200});
  Session first = new_session(*engine), second = new_session(*engine);
  const Tokens tokens = random_tokens(*engine, 600);
  ASSERT_TRUE(first.extend(std::span(tokens).first(1)));
  const AllocationCounter counter;
  ASSERT_TRUE(first.extend(tokens));
  ASSERT_TRUE(second.extend(tokens));
  EXPECT_EQ(counter.allocations(), 0u);
}

}  // namespace
}  // namespace moeflux
