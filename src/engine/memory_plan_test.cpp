#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "base/sizes.h"
#include "engine/testing/test_models.h"
#include "experts/expert_store.h"
#include "experts/resident_experts.h"
#include "io/posix_file_system.h"

namespace moeflux {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

MemoryPlan some_plan() {
  MemoryPlan plan;
  plan.weights_bytes = 4 * kGiB;
  plan.experts_bytes = 18 * kGiB;
  plan.kv_bytes = 320 * kMiB;
  plan.workspace_bytes = 80 * kMiB;
  plan.usable_bytes = 24 * kGiB;
  return plan;
}

TEST(MemoryPlan, FitsWhenTheTotalIsUsable) {
  MemoryPlan plan = some_plan();
  EXPECT_TRUE(plan.check());
  plan.usable_bytes = plan.total_bytes();
  EXPECT_TRUE(plan.check());
}

TEST(MemoryPlan, RefusesOneByteTooManyWithEveryNumber) {
  MemoryPlan plan = some_plan();
  plan.usable_bytes = plan.total_bytes() - 1;
  const Status checked = plan.check();
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code(), ErrorCode::out_of_memory);
  for (const std::uint64_t bytes : {plan.total_bytes(), plan.weights_bytes, plan.experts_bytes, plan.kv_bytes,
                                    plan.workspace_bytes, plan.usable_bytes})
    EXPECT_THAT(checked, test::States(human_bytes(bytes)));
}

TEST(MemoryPlan, FitsWhenUsableMemoryIsUnknown) {
  MemoryPlan plan = some_plan();
  plan.usable_bytes = 0;
  EXPECT_TRUE(plan.check());
}

TEST(MemoryPlan, DescribesItsNonzeroParts) {
  EXPECT_THAT(some_plan().describe(),
              AllOf(test::States("resident weights", "experts", "keys and values", "together", "usable"),
                    Not(HasSubstr("derived")), Not(HasSubstr("recurrent"))));
}

// kv_b_proj is multiplied from its codes, which are copied only if a head begins within a block of 16 rows.
TEST(MemoryPlanOfAnEngine, HasNoCopyOfKvBUnlessHeadsBeginWithinABlock) {
  for (const std::uint32_t value_dim : {24u, 32u}) {
    ModelConfig config = small_deepseek();
    for (LayerConfig& layer : config.layers) std::get<MlaConfig>(layer.mixer).value_dim = value_dim;
    const auto engine = ModelOnDisk(config).open();
    EXPECT_EQ(engine->memory_plan().derived_bytes == 0, value_dim == 32) << value_dim;
  }
}

TEST(MemoryPlanOfAnEngine, CountsTheMemoryOfModelAndOptions) {
  for (const char* const name : {"qwen", "deepseek"}) {
    const ModelConfig config = small_model(name);
    const ModelOnDisk model(config);
    const auto engine = model.open({.threads = 1, .context = 700, .step_rows = 64});
    const MemoryPlan& plan = engine->memory_plan();
    const StateShape shape = state_shape_of(config);
    EXPECT_EQ(plan.weights_bytes, engine->model().manifest().resident_bytes);
    EXPECT_EQ(plan.experts_bytes, ResidentExperts::bytes_of(engine->model()));
    EXPECT_EQ(plan.recurrent_bytes, 6 * shape.recurrent_block_bytes()) << "two of a step, four checkpoints";
    EXPECT_EQ(plan.state_bytes(),
              BlockPool::budget_for(shape.kv_bytes(700) + plan.recurrent_bytes, shape.block_sizes()));
    EXPECT_GT(plan.workspace_bytes, 0u);
    EXPECT_EQ(plan.derived_bytes != 0, std::string_view(name) == "deepseek");
    EXPECT_GT(plan.usable_bytes, plan.total_bytes());

    Session session = new_session(*engine);
    ASSERT_TRUE(session.extend(random_tokens(*engine, 600)));
    EXPECT_EQ(engine->state_pool().used_bytes(), shape.session_bytes(700))
        << "600 positions take the blocks of 700";
  }
}

TEST(MemoryPlanOfAnEngine, IsRefusedBeforeAnythingIsReadIfItDoesNotFit) {
  const ModelOnDisk model(small_qwen());
  PosixFileSystem disk;
  const std::uint64_t all = ExpertStore::bytes_of(*PackedModel::open(disk, model.path()), ~std::uint64_t{0});
  const std::uint64_t needed =
      model.open({.threads = 1, .expert_cache_bytes = all})->memory_plan().total_bytes();
  ASSERT_TRUE(model.try_open({.threads = 1, .usable_memory_bytes = needed, .expert_cache_bytes = all}));
  const auto refused =
      model.try_open({.threads = 1, .usable_memory_bytes = needed - 1, .expert_cache_bytes = all});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
  EXPECT_THAT(refused, test::States(human_bytes(needed)));
}

TEST(MemoryPlanOfAnEngine, GivesTheExpertsTheRestAndAtLeastOneRecord) {
  const ModelOnDisk model(small_qwen());
  PosixFileSystem disk;
  const PackedModel packed = *PackedModel::open(disk, model.path());
  const MemoryPlan whole = model.open({.threads = 1})->memory_plan();
  EXPECT_EQ(whole.experts_bytes, ExpertStore::bytes_of(packed, ~std::uint64_t{0}));
  // All other parts, the reserve, and half of the experts.
  const std::uint64_t others = whole.total_bytes() - whole.experts_bytes;
  const std::uint64_t reserve = 64 * kMiB;
  const std::uint64_t half = whole.experts_bytes / 2;
  const MemoryPlan tight =
      model.open({.threads = 1, .usable_memory_bytes = others + reserve + half})->memory_plan();
  EXPECT_LE(tight.experts_bytes, half);
  EXPECT_GT(tight.experts_bytes, half / 2);
  const MemoryPlan least =
      model.open({.threads = 1, .usable_memory_bytes = others + ExpertStore::least_bytes(packed)})
          ->memory_plan();
  EXPECT_EQ(least.experts_bytes, ExpertStore::least_bytes(packed));
}

// A prompt takes other paths through a recurrent layer than single rows do, and more scratch memory. A step
// that takes more than was planned ends the program.
TEST(MemoryPlanOfAnEngine, HasScratchMemoryForPromptsAndForManySessions) {
  ModelConfig config = small_qwen();
  auto& net = std::get<GatedDeltaNetConfig>(config.layers[0].mixer);
  net.value_heads = 32;
  net.value_head_dim = 64;
  config.layers.resize(1);
  const ModelOnDisk model(config);
  for (const unsigned threads : {1u, 2u}) {
    const auto engine = model.open({.threads = threads, .context = 256, .step_rows = 200, .sessions = 200});
    const Tokens tokens = random_tokens(*engine, 200);
    Session prompt = new_session(*engine);
    EXPECT_EQ(step(*engine, {{&prompt, tokens, WantedLogits::none, {}}}).rows, 200u);
    std::vector<Session> sessions;
    std::vector<Segment> batch;
    for (std::size_t i = 0; i < 200; ++i) sessions.push_back(new_session(*engine));
    for (std::size_t i = 0; i < 200; ++i)
      batch.push_back({&sessions[i], std::span(tokens).subspan(i, 1), WantedLogits::none, {}});
    EXPECT_EQ(step(*engine, batch).rows, 200u);
  }
}

TEST(MemoryPlanOfAnEngine, CountsTheBudgetOfStatesIfItIsSmaller) {
  const ModelOnDisk model(small_qwen());
  EXPECT_EQ(model.open({.threads = 1, .kv_budget_bytes = 100'000})->memory_plan().state_bytes(), 100'000u);
}

TEST(MemoryPlanOfAnEngine, CountsEverySession) {
  const ModelOnDisk model(small_qwen());
  const StateShape shape = state_shape_of(small_qwen());
  const MemoryPlan plan = model.open({.threads = 1, .context = 700, .sessions = 5})->memory_plan();
  EXPECT_EQ(plan.state_bytes(),
            BlockPool::budget_for(5 * (shape.kv_bytes(700) + 6 * shape.recurrent_block_bytes()),
                                  shape.block_sizes()));
}

// Without a budget the states get what no other part of the plan needs.
TEST(MemoryPlanOfAnEngine, TheStatesOfSessionsNeverExceedTheMachine) {
  const ModelOnDisk model(small_qwen());
  const std::uint64_t needed = model.open({.threads = 1, .context = 700})->memory_plan().total_bytes();
  for (const std::uint64_t usable : {needed, needed + 70 * kMiB, needed + 200 * kMiB}) {
    const auto engine = model.open({.threads = 1, .context = 700, .usable_memory_bytes = usable});
    const MemoryPlan& plan = engine->memory_plan();
    const std::uint64_t others = plan.total_bytes() - plan.state_bytes();
    EXPECT_GE(engine->state_pool().budget_bytes(), plan.state_bytes());
    EXPECT_LE(others + engine->state_pool().budget_bytes(), usable);
  }
}

TEST(MemoryPlanOfAnEngine, PlannedSessionsAllReachTheFullContext) {
  for (const char* const name : {"qwen", "deepseek"}) {
    const ModelOnDisk model(small_model(name));
    const auto engine = model.open({.threads = 1, .context = 300, .sessions = 3});
    engine->state_pool().set_budget_bytes(engine->memory_plan().state_bytes());
    std::vector<Session> sessions;
    for (int i = 0; i < 3; ++i) {
      sessions.push_back(new_session(*engine));
      for (const std::uint32_t rows : {100u, 100u, 50u, 40u}) {
        ASSERT_TRUE(sessions.back().extend(random_tokens(*engine, rows)));
        sessions.back().checkpoint();
      }
    }
    for (Session& session : sessions) EXPECT_TRUE(succeeds(session.extend(random_tokens(*engine, 10))));
  }
}

}  // namespace
}  // namespace moeflux
