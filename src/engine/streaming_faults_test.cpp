// A step whose drive fails has no effect, and the next one computes the bits of an undisturbed run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/testing/streaming_testing.h"

namespace moeflux {
namespace {

using testing::HasSubstr;

constexpr std::size_t kFew = 6, kMany = 40;  // rows: only the larger step sweeps the experts

bool is_impatience(const Result<StepStatistics>& done) {
  return !done && test::states_fact(done.error().message(), "no answer");
}

// Two sessions and a step of both that is disturbed.
class StreamedSessions {
 public:
  StreamedSessions(Engine& engine, std::size_t rows)
      : engine_(engine),
        before_(random_tokens(engine, 3, 1)),
        tokens_{random_tokens(engine, rows, 2), random_tokens(engine, 2, 3)} {
    for (int i = 0; i < 2; ++i) sessions_.push_back(new_session(engine));
  }
  void restart() {
    for (Session& session : sessions_) session.clear();
    const std::vector<Segment> batch = {{&sessions_[0], before_, WantedLogits::none, {}}};
    EXPECT_TRUE(succeeds(patiently(batch, {})));
  }
  Result<StepStatistics> try_step(const StepOptions& options = {}) {
    const std::vector<Segment> batch = this->batch();
    return engine_.step(batch, options);
  }
  // The same, on an engine whose patience may be too short for this machine.
  Logits logits() {
    const std::vector<Segment> batch = this->batch();
    EXPECT_TRUE(succeeds(patiently(batch, {})));
    return logits_;
  }
  const Logits& last_logits() const { return logits_; }
  void expect_nothing_moved() const {
    EXPECT_EQ(sessions_[0].position(), before_.size());
    EXPECT_EQ(sessions_[0].tokens().size(), before_.size());
    EXPECT_EQ(sessions_[1].position(), 0u);
  }

 private:
  std::vector<Segment> batch() {
    const std::size_t vocabulary = engine_.config().vocabulary;
    logits_.assign(2 * vocabulary, 0.0F);
    const std::span<float> all = logits_;
    return {{&sessions_[0], tokens_[0], WantedLogits::last, all.first(vocabulary)},
            {&sessions_[1], tokens_[1], WantedLogits::last, all.last(vocabulary)}};
  }
  Result<StepStatistics> patiently(const std::vector<Segment>& batch, const StepOptions& options) {
    Result<StepStatistics> done = engine_.step(batch, options);
    for (int i = 0; i < 500 && is_impatience(done); ++i) done = engine_.step(batch, options);
    return done;
  }

  Engine& engine_;
  std::vector<Session> sessions_;
  Tokens before_;
  std::vector<Tokens> tokens_;
  Logits logits_;
};

Logits undisturbed(const ModelOnDisk& model, std::size_t rows) {
  const auto engine = open_resident(model);
  StreamedSessions sessions(*engine, rows);
  sessions.restart();
  return sessions.logits();
}

class StreamingFaults : public OnSmallModels {
 protected:
  EngineOptions options(bool prefetches) const {
    EngineOptions options{.threads = 1, .context = 128, .step_rows = 64};
    options.prefetches = prefetches;
    options.drive = DriveChoice{DriveKind::buffered, {}};
    return options;
  }
  // Injects a fault at every read of a step in turn. The step must fail if `always_fails`; otherwise it may
  // succeed, because the failed read may belong to a guess.
  void fail_at_every_read(EngineOptions engine_options, DriveFaultKind kind, const std::string& cause,
                          bool always_fails) {
    for (const std::size_t rows : {kFew, kMany}) {
      const Logits expected = undisturbed(model, rows);
      for (const std::size_t cache : {0u, 2u}) {  // one record of every size, half of all
        engine_options.expert_cache_bytes = cache_sizes(model)[cache];
        const auto faults = std::make_shared<DriveFaults>();
        const auto engine = open_faulty(model, engine_options, faults);
        StreamedSessions sessions(*engine, rows);
        std::uint64_t failures = 0;
        for (std::uint64_t index = 0;; ++index) {
          sessions.restart();
          const std::uint64_t before = faults->reads();
          faults->set_plan({.faults = {{.kind = kind, .index = index}}});
          const Result<StepStatistics> done = sessions.try_step();
          const bool was_hit = faults->reads() - before > index;
          faults->set_plan({});
          faults->release_stuck();
          if (done) {
            EXPECT_TRUE(same_bits(sessions.last_logits(), expected));
            if (!was_hit) break;
            EXPECT_FALSE(always_fails) << "read " << index;
          } else {
            ++failures;
            EXPECT_EQ(done.error().code(), ErrorCode::io_failed);
            EXPECT_THAT(done, test::States("expert", "layer", cause));
            EXPECT_THAT(done.error().message(), HasSubstr((model.path() / "experts/layer_00").native()));
            sessions.expect_nothing_moved();
            EXPECT_TRUE(same_bits(sessions.logits(), expected));
          }
          if (HasFailure())
            FAIL() << "after a fault at read " << index << " of a step of " << rows << " rows";
        }
        EXPECT_GT(failures, always_fails ? 5u : 0u);
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(, StreamingFaults, testing::Values("qwen", "deepseek"),
                         [](const auto& name) { return std::string(name.param); });

TEST_P(StreamingFaults, AStepHasNoEffectWhicheverReadFails) {
  fail_at_every_read(options(false), DriveFaultKind::error, "Input/output error", true);
}

TEST_P(StreamingFaults, AStepHasNoEffectOrSucceedsWhicheverReadFailsDuringPrefetch) {
  fail_at_every_read(options(true), DriveFaultKind::error, "Input/output error", false);
}

TEST_P(StreamingFaults, AStepHasNoEffectWhereverAFileEnds) {
  fail_at_every_read(options(false), DriveFaultKind::end_of_file, "the file has been cut off", true);
}

TEST_P(StreamingFaults, AVerifiedStepHasNoEffectWhereverABitIsFlipped) {
  EngineOptions verifying = options(false);
  verifying.verifies_reads = true;
  fail_at_every_read(verifying, DriveFaultKind::flipped_bit, "checksum", true);
}

TEST_P(StreamingFaults, AStepHasNoEffectWhicheverReadNeverCompletes) {
  EngineOptions impatient = options(false);
  impatient.store.patience = std::chrono::milliseconds(20);
  fail_at_every_read(impatient, DriveFaultKind::stuck, "no answer", true);
}

TEST_P(StreamingFaults, ContinuesShortReads) {
  const Logits expected = undisturbed(model, kMany);
  EngineOptions verifying = options(true);
  verifying.verifies_reads = true;
  verifying.expert_cache_bytes = cache_sizes(model)[0];
  const auto faults = std::make_shared<DriveFaults>();
  const auto engine = open_faulty(model, verifying, faults);
  faults->set_plan({.faults = {{.kind = DriveFaultKind::short_read, .index = 0, .and_all_later = true}}});
  StreamedSessions sessions(*engine, kMany);
  sessions.restart();
  EXPECT_TRUE(same_bits(sessions.logits(), expected));
}

// ---- Cancelling and destroying ----

// Cancelled at every layer, with reads of guesses and of later layers in flight.
TEST_P(StreamingFaults, ACancelledStepHasNoEffect) {
  const auto layers = static_cast<std::uint32_t>(config.layers.size());
  for (const std::size_t rows : {kFew, kMany}) {
    const Logits expected = undisturbed(model, rows);
    EngineOptions cached = options(true);
    cached.expert_cache_bytes = cache_sizes(model)[2];
    const auto faults = std::make_shared<DriveFaults>();
    const auto engine = open_faulty(model, cached, faults);
    faults->set_plan({.pick = random_pick(rows)});
    StreamedSessions sessions(*engine, rows);
    for (std::uint32_t after = 1; after < layers; ++after) {
      sessions.restart();
      std::atomic<bool> flag = false;
      CountingObserver observer(flag, after);
      const Result<StepStatistics> cancelled = sessions.try_step({.observer = &observer, .cancel = &flag});
      EXPECT_TRUE(fails_with(cancelled, ErrorCode::cancelled));
      sessions.expect_nothing_moved();
      EXPECT_TRUE(same_bits(sessions.logits(), expected)) << "cancelled after " << after << " layers";
    }
  }
}

// For the sanitizers, which find a write to freed memory.
TEST_P(StreamingFaults, SessionsAndEngineAreDestroyedWithReadsInFlight) {
  for (const DriveChoice& drive : kStreamingDrives)
    for (const DriveFaultKind kind : {DriveFaultKind::stuck, DriveFaultKind::error})
      for (std::uint64_t index = 0; index < 12; ++index) {
        EngineOptions impatient = options(true);
        impatient.expert_cache_bytes = cache_sizes(model)[2];
        impatient.drive = drive;
        impatient.store.patience = std::chrono::milliseconds(1);
        impatient.store.piece_bytes = 4096;
        const auto faults = std::make_shared<DriveFaults>();
        DriveFaultPlan plan{.faults = {}, .pick = random_pick(index)};
        plan.faults = {{.kind = kind, .index = 4 * index, .and_all_later = true}};
        {
          const auto engine = open_faulty(model, impatient, faults);
          StreamedSessions sessions(*engine, index % 2 == 0 ? kFew : kMany);
          faults->set_plan(plan);
          EXPECT_FALSE(sessions.try_step());
          EXPECT_FALSE(sessions.try_step());
        }
        EXPECT_EQ(faults->reads_in_flight(), 0u);
      }
}

TEST_P(StreamingFaults, AnEngineIsDestroyedRightAfterACancelledStep) {
  for (const DriveChoice& drive : kStreamingDrives)
    for (std::uint32_t after = 1; after < config.layers.size(); ++after) {
      EngineOptions cached = options(true);
      cached.expert_cache_bytes = cache_sizes(model)[2];
      cached.drive = drive;
      const auto faults = std::make_shared<DriveFaults>();
      {
        const auto engine = open_faulty(model, cached, faults);
        StreamedSessions sessions(*engine, kMany);
        std::atomic<bool> flag = false;
        CountingObserver observer(flag, after);
        EXPECT_TRUE(
            fails_with(sessions.try_step({.observer = &observer, .cancel = &flag}), ErrorCode::cancelled));
      }
      EXPECT_EQ(faults->reads_in_flight(), 0u);
    }
}

}  // namespace
}  // namespace moeflux
