// Streaming changes when experts are read, never what is computed; reads are counted to the byte.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "engine/testing/streaming_testing.h"

namespace moeflux {
namespace {

// A session with a prompt of many rows and some more tokens, five sessions in a batch, a prompt of few rows.
Logits scenario(Engine& engine) {
  Logits all;
  const auto add = [&](const Logits& logits) { all.insert(all.end(), logits.begin(), logits.end()); };
  Session one = new_session(engine);
  add(logits_after(one, random_tokens(engine, 40, 1)));
  for (std::uint32_t i = 0; i < 4; ++i) add(logits_after(one, random_tokens(engine, 1, 10 + i)));

  std::vector<Session> five;
  for (std::uint32_t i = 0; i < 5; ++i) {
    five.push_back(new_session(engine));
    add(all_logits(five.back(), random_tokens(engine, 1 + 3 * i, 20 + i)));
  }
  const std::size_t vocabulary = engine.config().vocabulary;
  for (std::uint32_t turn = 0; turn < 3; ++turn) {
    const Tokens tokens = random_tokens(engine, 10, 30 + turn);
    Logits logits(5 * vocabulary);
    std::vector<Segment> batch;
    for (std::size_t i = 0; i < 5; ++i)  // two tokens each in the second turn
      batch.push_back({&five[i], std::span(tokens).subspan(2 * i, turn == 1 ? 2 : 1), WantedLogits::last,
                       std::span(logits).subspan(i * vocabulary, vocabulary)});
    step(engine, batch);
    add(logits);
  }
  return all;
}

class Streaming : public OnSmallModels {
 protected:
  // Whether the engine's drive differs from the requested one.
  static bool is_refused(const Engine& engine, DriveKind kind) {
    return kind == DriveKind::uring && engine.streaming().drive.find("io_uring") == std::string::npos;
  }
};
INSTANTIATE_TEST_SUITE_P(, Streaming, testing::Values("qwen", "deepseek"),
                         [](const auto& name) { return std::string(name.param); });

TEST_P(Streaming, GivesTheBitsOfResidentExpertsForAnyBudgetDriveAndThreads) {
  const Logits expected = scenario(*open_resident(model));
  for (const std::uint64_t cache : cache_sizes(model))
    for (const DriveChoice& drive : kStreamingDrives)
      for (const bool prefetches : {true, false})
        for (const unsigned threads : {1u, 2u}) {
          const auto engine = model.open({.threads = threads,
                                          .context = 256,
                                          .step_rows = 64,
                                          .expert_cache_bytes = cache,
                                          .drive = drive,
                                          .prefetches = prefetches});
          if (is_refused(*engine, drive.kind)) continue;
          EXPECT_TRUE(same_bits(scenario(*engine), expected))
              << "a cache of " << cache << ", " << engine->streaming().drive << ", prefetch " << prefetches
              << ", " << threads << " threads";
        }
}

TEST_P(Streaming, GivesTheSameBitsWhateverTheOrderOfCompletions) {
  const Logits expected = scenario(*open_resident(model));
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const auto faults = std::make_shared<DriveFaults>();
    faults->set_plan({.pick = random_pick(seed)});
    EngineOptions options{.threads = 1, .context = 256, .step_rows = 64};
    options.expert_cache_bytes = cache_sizes(model)[seed % 4];
    options.drive = DriveChoice{DriveKind::buffered, {}};
    options.prefetches = seed % 2 == 0;
    options.store.piece_bytes = 4096;
    EXPECT_TRUE(same_bits(scenario(*open_faulty(model, options, faults)), expected)) << "seed " << seed;
  }
}

TEST_P(Streaming, CountsEachExpertOfAStepOnce) {
  for (const std::uint64_t cache : cache_sizes(model))
    for (const bool prefetches : {true, false}) {
      const auto engine = model.open({.threads = 1, .expert_cache_bytes = cache, .prefetches = prefetches});
      Session session = new_session(*engine);
      for (const std::size_t rows : {40u, 1u, 1u, 7u, 1u, 40u}) {
        const Tokens tokens = random_tokens(*engine, rows, static_cast<std::uint32_t>(rows));
        ChoiceObserver observer;
        const StepStatistics took =
            step(*engine, {{&session, tokens, WantedLogits::none, {}}}, {.observer = &observer});
        EXPECT_EQ(took.experts_served, observer.distinct());
        EXPECT_EQ(took.experts.wanted(), took.experts_served);
        EXPECT_LE(took.experts.hits, took.experts_served);
        EXPECT_LE(took.experts.misses, took.experts_served);
        EXPECT_LE(took.experts.late, took.experts_served);
      }
    }
}

TEST_P(Streaming, ReadsExactlyTheMissesWithoutPrefetch) {
  ModelConfig short_config = config;  // one MoE layer, so that all records have one size
  short_config.layers.resize(std::string_view(GetParam()) == "qwen" ? 1 : 2);
  const ModelOnDisk one_size(short_config);
  for (std::uint64_t cache : cache_sizes(one_size)) {
    const auto faults = std::make_shared<DriveFaults>();
    EngineOptions options{.threads = 1};
    options.prefetches = false;
    options.expert_cache_bytes =
        std::min(cache, cache_sizes(one_size).back() - 1);  // a cache for all would fill itself
    options.drive = DriveChoice{DriveKind::pread, {}};
    const auto engine = open_faulty(one_size, options, faults);
    const std::uint64_t record = ExpertStore::least_bytes(engine->model());
    Session session = new_session(*engine);
    std::uint64_t missed = 0;
    for (const std::size_t rows : {3u, 1u, 40u, 1u, 7u, 1u, 1u}) {
      const Tokens tokens = random_tokens(*engine, rows, static_cast<std::uint32_t>(7 + rows));
      const StepStatistics took = step(*engine, {{&session, tokens, WantedLogits::none, {}}});
      EXPECT_EQ(took.experts.late, 0u);
      EXPECT_EQ(took.experts.demanded_bytes, took.experts.misses * record);
      EXPECT_EQ(took.experts.read_bytes(), took.experts.demanded_bytes);
      missed += took.experts.misses;
    }
    EXPECT_GT(missed, 0u);
    EXPECT_EQ(faults->bytes(), missed * record);
    EXPECT_EQ(faults->reads_in_flight(), 0u);
    EXPECT_EQ(engine->expert_statistics().demanded_bytes, missed * record);
  }
}

TEST_P(Streaming, StepsAllocateNothing) {
  for (const std::uint64_t cache : cache_sizes(model))
    for (const DriveChoice& drive : kStreamingDrives) {
      const auto engine = model.open(
          {.threads = 2, .context = 256, .step_rows = 64, .expert_cache_bytes = cache, .drive = drive});
      Session session = new_session(*engine), other = new_session(*engine);
      const Tokens tokens = random_tokens(*engine, 100);
      Logits logits(config.vocabulary);
      step(*engine, {{&session, {&tokens[0], 1}, WantedLogits::last, logits}});
      const AllocationCounter counter;
      bool has_succeeded = true;
      for (const std::size_t rows : {40u, 1u, 1u, 8u, 1u}) {
        const std::array<Segment, 2> batch = {
            Segment{&session, std::span(tokens).first(rows), WantedLogits::last, logits},
            Segment{&other, std::span(tokens).last(1), WantedLogits::none, {}}};
        has_succeeded = has_succeeded && engine->step(batch);
      }
      EXPECT_EQ(counter.allocations(), 0u) << engine->streaming().drive << ", a cache of " << cache;
      EXPECT_TRUE(has_succeeded);
    }
}

}  // namespace
}  // namespace moeflux
