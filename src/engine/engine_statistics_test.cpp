// What any thread reads of an engine while steps run: statistics, and which experts are in memory.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "engine/testing/streaming_testing.h"

namespace moeflux {
namespace {

class EngineStatisticsOf : public OnSmallModels {
 protected:
  // Half of the experts in memory.
  EngineOptions options(bool prefetches = true) const {
    EngineOptions options{.threads = 1, .context = 256, .step_rows = 64};
    options.expert_cache_bytes = cache_sizes(model)[2];
    options.drive = DriveChoice{DriveKind::buffered, {}};
    options.prefetches = prefetches;
    options.store.patience = std::chrono::minutes(4);
    return options;
  }
  std::uint32_t moe_layers() const {
    std::uint32_t count = 0;
    for (const LayerConfig& layer : config.layers) count += std::holds_alternative<MoeConfig>(layer.mlp);
    return count;
  }
};
INSTANTIATE_TEST_SUITE_P(, EngineStatisticsOf, testing::Values("qwen", "deepseek"),
                         [](const auto& name) { return std::string(name.param); });

std::uint32_t count_of(const ResidencyMap& map, Residency state) {
  std::uint32_t count = 0;
  for (std::uint32_t layer = 0; layer < map.layers(); ++layer)
    for (std::uint32_t expert = 0; expert < map.experts(LayerId(layer)); ++expert)
      count += map.of(LayerId(layer), ExpertId(expert)).state == state;
  return count;
}

TEST_P(EngineStatisticsOf, AreReadWhileAStepWaitsForARead) {
  const auto faults = std::make_shared<DriveFaults>();
  const auto engine = open_faulty(model, options(false), faults);
  Session session = new_session(*engine);
  const Tokens tokens = random_tokens(*engine, 50);
  Logits expected = fresh_logits(*engine, tokens);
  logits_after(session, std::span(tokens).first(10));
  const ExpertStatistics experts_before = engine->expert_statistics();
  const EngineStatistics before = engine->statistics();

  faults->set_plan({.faults = {{.kind = DriveFaultKind::stuck, .and_all_later = true}}});
  Logits found(config.vocabulary);
  std::atomic<bool> has_succeeded = false;
  std::thread stepping([&] {
    const Segment segment{&session, std::span(tokens).last(40), WantedLogits::last, found};
    has_succeeded = engine->step({&segment, 1}).has_value();
  });
  while (faults->stuck() == 0) std::this_thread::yield();
  std::uint32_t loading = 0;
  const AllocationCounter counter;
  bool is_unchanged = true;
  for (int i = 0; i < 200; ++i) {
    is_unchanged &= engine->statistics().steps == before.steps;
    loading = count_of(engine->residency(), Residency::loading);
  }
  const ExpertStatistics experts_during = engine->expert_statistics();
  const std::uint64_t allocations = counter.allocations();
  EXPECT_GT(faults->stuck(), 0u) << "the step still waits";
  faults->set_plan({});
  faults->release_stuck();
  stepping.join();

  EXPECT_TRUE(has_succeeded);
  EXPECT_TRUE(same_bits(found, expected));
  EXPECT_TRUE(is_unchanged);
  EXPECT_GT(loading, 0u);
  EXPECT_EQ(allocations, 0u);
  // Layers before the one that waits may have found all their experts in memory.
  EXPECT_EQ(experts_during.misses, experts_before.misses);
  EXPECT_EQ(experts_during.reads, experts_before.reads);
  EXPECT_GT(engine->expert_statistics().misses, experts_during.misses);
  EXPECT_EQ(engine->statistics().steps.steps, before.steps.steps + 1);
  EXPECT_EQ(engine->statistics().steps.rows, before.steps.rows + 40);
  EXPECT_EQ(count_of(engine->residency(), Residency::loading), 0u);
}

TEST_P(EngineStatisticsOf, AreWholeWhateverStepsRunMeanwhile) {
  const auto engine = model.open(options());
  const std::uint64_t per_token = engine->options().experts_per_token;
  Session session = new_session(*engine);
  const Tokens tokens = random_tokens(*engine, 200);
  std::atomic<bool> is_over = false, has_begun = false;
  std::vector<std::string> wrong;
  std::thread reader([&] {
    ExpertStatistics last;
    StepTotals last_steps;
    while (!is_over) {
      const ExpertStatistics experts = engine->expert_statistics();
      if (experts.wanted() % per_token != 0) wrong.push_back("experts of half a layer");
      if (experts.wanted() < last.wanted() || experts.hits < last.hits || experts.misses < last.misses ||
          experts.read_bytes() < last.read_bytes() || experts.waiting < last.waiting ||
          experts.reading < last.reading)
        wrong.push_back("a counter decreased");
      last = experts;
      const EngineStatistics found = engine->statistics();
      if (found.steps.steps != found.steps.rows) wrong.push_back("steps of one row each");
      if (found.steps.steps < last_steps.steps || found.steps.took < last_steps.took)
        wrong.push_back("steps decreased");
      last_steps = found.steps;
      if (found.states.used_bytes > found.states.slab_bytes ||
          found.states.slab_bytes > found.states.budget_bytes)
        wrong.push_back("more states than the budget");
      const ResidencyMap& map = engine->residency();
      if (count_of(map, Residency::absent) > map.records()) wrong.push_back("more experts than the model");
      has_begun = true;
    }
  });
  while (!has_begun) std::this_thread::yield();
  for (const TokenId& token : tokens) logits_after(session, {&token, 1});
  is_over = true;
  reader.join();
  EXPECT_EQ(wrong, std::vector<std::string>());
  EXPECT_EQ(engine->expert_statistics().wanted(), tokens.size() * moe_layers() * per_token);
  EXPECT_EQ(engine->statistics().steps.steps, tokens.size());
}

// An observer runs on the thread of the step, which holds the engine's mutex.
TEST_P(EngineStatisticsOf, AreReadByAnObserverOfTheStep) {
  struct Reading : IdleObserver {
    explicit Reading(Engine& read) : engine(read) {}
    void saw(StepPoint point, LayerId layer, std::span<const float>, std::uint32_t) override {
      if (point != StepPoint::routed) return;  // all experts of the layer were used
      wanted.push_back(engine.expert_statistics().wanted());
      std::uint64_t last_use = 0;
      for (std::uint32_t expert = 0; expert < engine.residency().experts(layer); ++expert)
        last_use = std::max(last_use, engine.residency().of(layer, ExpertId(expert)).last_use);
      last_uses.push_back(last_use);
      EXPECT_EQ(engine.statistics().steps, StepTotals());
    }
    Engine& engine;
    std::vector<std::uint64_t> wanted, last_uses;
  };
  const auto engine = model.open(options());
  Session session = new_session(*engine);
  Reading observer(*engine);
  logits_after(session, random_tokens(*engine, 1), {.observer = &observer});
  ASSERT_EQ(observer.last_uses.size(), moe_layers());
  for (std::uint32_t i = 0; i < moe_layers(); ++i) {
    EXPECT_EQ(observer.last_uses[i], i + 1) << "the fetches of all layers are numbered together";
    EXPECT_EQ(observer.wanted[i], i * engine->options().experts_per_token) << "of the layers before";
  }
}

TEST_P(EngineStatisticsOf, CountStepsByTheirOutcome) {
  const auto faults = std::make_shared<DriveFaults>();
  const auto engine = open_faulty(model, options(false), faults);
  Session session = new_session(*engine);
  const Tokens tokens = random_tokens(*engine, 40);
  EXPECT_EQ(engine->statistics().steps, StepTotals());
  EXPECT_EQ(engine->statistics().states.used_bytes, 0u);
  EXPECT_EQ(engine->statistics().states.budget_bytes, engine->state_pool().budget_bytes());

  std::chrono::nanoseconds took{0};
  const auto run = [&](std::size_t rows, const StepOptions& step_options = {}) {
    const Segment segment{&session, std::span(tokens).first(rows), WantedLogits::none, {}};
    const Result<StepStatistics> done = engine->step({&segment, 1}, step_options);
    if (done) took += done->took;
    return done.has_value();
  };
  EXPECT_TRUE(run(3));
  EXPECT_TRUE(run(2));
  EXPECT_EQ(engine->statistics().steps, (StepTotals{.steps = 2, .rows = 5, .took = took}));

  faults->set_plan({.faults = {{.kind = DriveFaultKind::error, .and_all_later = true}}});
  EXPECT_FALSE(run(40));
  faults->set_plan({});
  const std::atomic<bool> cancel = true;
  EXPECT_FALSE(run(4, {.cancel = &cancel}));
  EXPECT_FALSE(run(0)) << "refused before any work";
  EXPECT_EQ(engine->statistics().steps,
            (StepTotals{.steps = 2, .rows = 5, .failed = 1, .cancelled = 1, .took = took}));
  EXPECT_EQ(engine->statistics().states.used_bytes,
            state_shape_of(config, engine->options().kv_dtype).session_bytes(5));
}

TEST_P(EngineStatisticsOf, ShowTheExpertsOfTheLastStepsInMemory) {
  const auto engine = model.open({.threads = 1, .context = 256, .step_rows = 64});  // with room for all
  Session session = new_session(*engine);
  std::uint64_t fetches = 0;
  for (const std::uint32_t rows : {20u, 1u, 1u}) {
    ChoiceObserver observer;
    logits_after(session, random_tokens(*engine, rows, rows), {.observer = &observer});
    for (const ChoiceObserver::Layer& layer : observer.layers) {
      ++fetches;
      const std::set<std::uint32_t> chosen(layer.experts.begin(), layer.experts.end());
      for (std::uint32_t expert = 0; expert < engine->residency().experts(layer.layer); ++expert) {
        const ExpertResidency found = engine->residency().of(layer.layer, ExpertId(expert));
        EXPECT_EQ(found.last_use == fetches, chosen.contains(expert));
        if (chosen.contains(expert)) {
          EXPECT_EQ(found, (ExpertResidency{Residency::ready, false, fetches}));
        }
      }
    }
  }
}

TEST_P(EngineStatisticsOf, ShowEveryExpertAsReadyIfAllAreResident) {
  const auto engine = open_resident(model);
  const ResidencyMap& map = engine->residency();
  ASSERT_EQ(map.layers(), config.layers.size());
  EXPECT_EQ(map.records(), engine->streaming().records);
  EXPECT_EQ(count_of(map, Residency::ready), map.records());
  for (std::uint32_t layer = 0; layer < map.layers(); ++layer) {
    const auto* const moe = std::get_if<MoeConfig>(&config.layers[layer].mlp);
    EXPECT_EQ(map.experts(LayerId(layer)), moe == nullptr ? 0 : moe->experts);
  }
}

}  // namespace
}  // namespace moeflux
