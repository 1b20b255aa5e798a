// A step that fails or is cancelled has no effect, wherever that happens.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <vector>

#include "engine/testing/test_models.h"

namespace moeflux {
namespace {

using test::States;

// Two sessions, a step of both that is disturbed, and a step after it.
class TwoSessions {
 public:
  TwoSessions(Engine& engine, std::size_t rows)
      : engine_(engine),
        before_(random_tokens(engine, 5, 1)),
        first_step_{random_tokens(engine, rows - rows / 3, 2), random_tokens(engine, 1 + rows / 3, 3)},
        second_step_{random_tokens(engine, 2, 4), random_tokens(engine, 3, 5)} {
    for (int i = 0; i < 2; ++i) sessions_.push_back(new_session(engine));
  }

  // Restores the state before the first step.
  void restart() {
    for (Session& session : sessions_) session.clear();
    step(engine_, {{&sessions_[0], before_, WantedLogits::none, {}}});
  }

  Result<StepStatistics> try_first(const StepOptions& options = {}) {
    return run(first_step_, std::vector(2, Logits(engine_.config().vocabulary)), options);
  }
  // After a step without effect.
  void expect_nothing_moved() const {
    EXPECT_EQ(sessions_[0].position(), before_.size());
    EXPECT_EQ(sessions_[1].position(), 0u);
    EXPECT_EQ(sessions_[0].tokens().size(), before_.size());
    EXPECT_TRUE(sessions_[1].tokens().empty());
  }

  // The logits of both steps, or of the second alone: the next step may differ from the one that failed.
  Logits both_steps() {
    Logits logits = logits_of(first_step_);
    const Logits second = logits_of(second_step_);
    logits.insert(logits.end(), second.begin(), second.end());
    return logits;
  }
  Logits other_step() { return logits_of(second_step_); }

 private:
  Result<StepStatistics> run(const std::vector<Tokens>& tokens, std::vector<Logits> logits,
                             const StepOptions& options) {
    const std::vector<Segment> batch = {{&sessions_[0], tokens[0], WantedLogits::last, logits[0]},
                                        {&sessions_[1], tokens[1], WantedLogits::last, logits[1]}};
    return engine_.step(batch, options);
  }
  Logits logits_of(const std::vector<Tokens>& tokens) {
    const std::size_t vocabulary = engine_.config().vocabulary;
    Logits logits(2 * vocabulary);
    const std::span<float> all = logits;
    step(engine_, {{&sessions_[0], tokens[0], WantedLogits::last, all.first(vocabulary)},
                   {&sessions_[1], tokens[1], WantedLogits::last, all.last(vocabulary)}});
    return logits;
  }

  Engine& engine_;
  std::vector<Session> sessions_;
  Tokens before_;
  std::vector<Tokens> first_step_, second_step_;
};

// The logits of an engine without faults.
struct Undisturbed {
  Logits both_steps, other_step;
  Undisturbed(Engine& engine, std::size_t rows) {
    TwoSessions sessions(engine, rows);
    sessions.restart();
    both_steps = sessions.both_steps();
    sessions.restart();
    other_step = sessions.other_step();
  }
};

void expect_undisturbed(TwoSessions& sessions, const Undisturbed& expected, bool same_step) {
  sessions.expect_nothing_moved();
  if (same_step)
    EXPECT_TRUE(same_bits(sessions.both_steps(), expected.both_steps));
  else
    EXPECT_TRUE(same_bits(sessions.other_step(), expected.other_step));
}

using FaultsIn = OnSmallModels;
INSTANTIATE_TEST_SUITE_P(, FaultsIn, testing::Values("qwen", "deepseek"),
                         [](const auto& name) { return std::string(name.param); });

constexpr std::size_t kFew = 7, kMany = 40;  // rows: only the larger step sweeps the experts

TEST_P(FaultsIn, AStepHasNoEffectWhicheverExpertCallFails) {
  for (const std::size_t rows : {kFew, kMany}) {
    const Undisturbed expected(*model.open(), rows);
    FailingExperts::Control control;
    control.one_by_one = rows == kFew;  // computes each expert before it requests the next
    const auto engine = model.open({.threads = 1}, control);
    TwoSessions sessions(*engine, rows);
    std::uint64_t faults = 0;
    for (std::uint64_t call = 0;; ++call, ++faults) {
      control.fail_at = FailingExperts::kNever;
      sessions.restart();
      control.message = "call " + std::to_string(call) + " fails";
      control.fail_at = control.calls + call;
      const Result<StepStatistics> failed = sessions.try_first();
      EXPECT_EQ(control.leases, 0u) << call;
      EXPECT_FALSE(control.is_fetching) << call;
      control.fail_at = FailingExperts::kNever;
      if (failed) break;  // the step has no more calls
      EXPECT_EQ(failed.error().code(), ErrorCode::io_failed);
      EXPECT_THAT(failed, States(control.message));
      expect_undisturbed(sessions, expected, call % 2 == 0);
      if (HasFailure()) FAIL() << "after a fault at call " << call << " of a step of " << rows << " rows";
    }
    // For each layer one begin, at least one call per expert of a token, and one end.
    EXPECT_GT(faults, 2 * (1 + 3 + 1u));
  }
}

TEST_P(FaultsIn, AFailureReleasesTheExpertsThatAreHeld) {
  const Undisturbed expected(*model.open(), kFew);
  FailingExperts::Control control;
  const auto engine = model.open({.threads = 1}, control);
  TwoSessions sessions(*engine, kFew);
  for (std::uint64_t call = 0;; ++call) {
    control.fail_at = FailingExperts::kNever;
    sessions.restart();
    control.fail_at = control.calls + call;
    const Result<StepStatistics> failed = sessions.try_first();
    EXPECT_EQ(control.leases, 0u) << call;
    control.fail_at = FailingExperts::kNever;
    if (failed) break;
    expect_undisturbed(sessions, expected, call % 2 == 0);
  }
  EXPECT_GT(control.most_leases, 1u);  // they were held together
}

TEST_P(FaultsIn, ManyFailuresInARowLeaveNoTrace) {
  const Undisturbed expected(*model.open(), kFew);
  FailingExperts::Control control;
  const auto engine = model.open({.threads = 2}, control);
  TwoSessions sessions(*engine, kFew);
  sessions.restart();
  for (std::uint64_t call = 0; call < 12; ++call) {
    control.fail_at = control.calls + call;
    EXPECT_FALSE(sessions.try_first());
  }
  control.fail_at = FailingExperts::kNever;
  expect_undisturbed(sessions, expected, true);
}

// The steps of both sessions need blocks that the failed one had reserved.
TEST_P(FaultsIn, AStepThatFailsOrIsCancelledGivesItsBlocksBack) {
  FailingExperts::Control control;
  const auto engine = model.open({.threads = 1, .context = 600, .step_rows = 500}, control);
  const StateShape shape = state_shape_of(config);
  Session first = new_session(*engine), second = new_session(*engine);
  ASSERT_TRUE(first.extend(random_tokens(*engine, 5)));
  const Tokens many = random_tokens(*engine, 260), few = random_tokens(*engine, 3);
  const std::vector<Segment> batch = {{&first, many, WantedLogits::none, {}},
                                      {&second, few, WantedLogits::none, {}}};
  const std::uint64_t used = engine->state_pool().used_bytes();
  EXPECT_EQ(used, shape.session_bytes(5));

  control.fail_at = control.calls + 1;
  EXPECT_TRUE(fails_with(engine->step(batch), ErrorCode::io_failed));
  EXPECT_EQ(engine->state_pool().used_bytes(), used);
  control.fail_at = FailingExperts::kNever;

  const std::atomic<bool> cancel = true;
  EXPECT_TRUE(fails_with(engine->step(batch, {.cancel = &cancel}), ErrorCode::cancelled));
  EXPECT_EQ(engine->state_pool().used_bytes(), used);

  // extend() reserves for all of its steps, and the second one fails.
  std::atomic<bool> flag = false;
  CountingObserver observer(flag, static_cast<std::uint32_t>(config.layers.size()) + 1);
  EXPECT_TRUE(
      fails_with(second.extend(random_tokens(*engine, 600), {}, {.observer = &observer, .cancel = &flag}),
                 ErrorCode::cancelled));
  EXPECT_EQ(second.position(), 500u);
  EXPECT_EQ(engine->state_pool().used_bytes(), used + shape.session_bytes(500));
  second.clear();

  ASSERT_TRUE(engine->step(batch));
  EXPECT_EQ(engine->state_pool().used_bytes(), shape.session_bytes(265) + shape.session_bytes(3));
}

// Sets the flag after layer `at`; -1: after the embedding.
class CancellingObserver : public IdleObserver {
 public:
  CancellingObserver(std::atomic<bool>& flag, int at) : flag_(flag), at_(at) {}
  void saw(StepPoint point, LayerId layer, std::span<const float>, std::uint32_t) override {
    if (point == StepPoint::embedding && at_ < 0) flag_ = true;
    if (point != StepPoint::residual) return;
    if (static_cast<int>(layer.index()) == at_) flag_ = true;
    ++layers_run;
  }
  int layers_run = 0;

 private:
  std::atomic<bool>& flag_;
  int at_;
};

TEST_P(FaultsIn, AStepHasNoEffectAtWhicheverLayerItIsCancelled) {
  const auto layers = static_cast<int>(config.layers.size());
  for (const std::size_t rows : {kFew, kMany}) {
    FailingExperts::Control control;
    const auto engine = model.open({.threads = 2}, control);
    const Undisturbed expected(*engine, rows);
    TwoSessions sessions(*engine, rows);
    for (int layer = -1; layer + 1 < layers; ++layer)
      for (const bool same_step : {true, false}) {
        sessions.restart();
        std::atomic<bool> flag = false;
        CancellingObserver observer(flag, layer);
        const Result<StepStatistics> cancelled = sessions.try_first({.observer = &observer, .cancel = &flag});
        ASSERT_FALSE(cancelled) << layer;
        EXPECT_EQ(cancelled.error().code(), ErrorCode::cancelled);
        EXPECT_EQ(observer.layers_run, layer + 1);  // no layer begins after it
        EXPECT_EQ(control.leases, 0u);
        expect_undisturbed(sessions, expected, same_step);
      }
  }
}

TEST_P(FaultsIn, AStepCancelledBeforeItBeginsDoesNothing) {
  const auto engine = model.open();
  const Undisturbed expected(*engine, kFew);
  TwoSessions sessions(*engine, kFew);
  sessions.restart();
  const std::atomic<bool> flag = true;
  const Result<StepStatistics> cancelled = sessions.try_first({.cancel = &flag});
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code(), ErrorCode::cancelled);
  expect_undisturbed(sessions, expected, true);
}

TEST_P(FaultsIn, ACancelAfterTheLastLayerIsTooLate) {
  const auto engine = model.open();
  TwoSessions sessions(*engine, kFew);
  sessions.restart();
  std::atomic<bool> flag = false;
  CancellingObserver observer(flag, static_cast<int>(config.layers.size()) - 1);
  EXPECT_TRUE(sessions.try_first({.observer = &observer, .cancel = &flag}));
}

// Puts a NaN into a row of one layer's input.
class SpoilingObserver : public IdleObserver {
 public:
  SpoilingObserver(LayerId layer, std::size_t row) : layer_(layer), row_(row) {}
  bool replace_residual(LayerId layer, std::span<float> rows, std::uint32_t cols) override {
    if (layer != layer_) return false;
    std::ranges::fill(rows, 1.0f);
    rows[row_ * cols + 3] = std::numeric_limits<float>::quiet_NaN();
    return true;
  }

 private:
  LayerId layer_;
  std::size_t row_;
};

TEST_P(FaultsIn, AStepWithNonFiniteNumbersNamesTheirPlaceAndHasNoEffect) {
  for (const std::size_t rows : {kFew, kMany}) {
    FailingExperts::Control control;
    const auto engine = model.open({.threads = 2}, control);
    const Undisturbed expected(*engine, rows);
    TwoSessions sessions(*engine, rows);
    for (std::uint32_t layer = 1; layer < config.layers.size(); ++layer) {
      sessions.restart();
      SpoilingObserver observer(LayerId(layer), 2);
      const Result<StepStatistics> failed = sessions.try_first({.observer = &observer});
      ASSERT_FALSE(failed) << layer;
      EXPECT_EQ(failed.error().code(), ErrorCode::corrupt_data);
      EXPECT_THAT(failed, States("layer " + std::to_string(layer), "row 2"));
      EXPECT_EQ(control.leases, 0u);
      expect_undisturbed(sessions, expected, layer % 2 == 0);
    }
  }
}

TEST_P(FaultsIn, ExpertsInAnyOrderAndNumberGiveTheSameBits) {
  const Undisturbed expected(*model.open(), kFew);
  for (const std::uint32_t limit : {1u, 2u, 5u, 1000u})
    for (const bool one_by_one : {false, true}) {
      FailingExperts::Control control;
      control.lease_limit = limit;
      control.last_first = true;
      control.one_by_one = one_by_one;
      const auto engine = model.open({.threads = 2}, control);
      TwoSessions sessions(*engine, kFew);
      sessions.restart();
      EXPECT_TRUE(same_bits(sessions.both_steps(), expected.both_steps)) << limit;
      EXPECT_LE(control.most_leases, limit);
      EXPECT_EQ(control.leases, 0u);
    }
}

TEST_P(FaultsIn, ASourceWithOneLeaseServesManyRows) {
  const Undisturbed expected(*model.open(), kMany);
  FailingExperts::Control control;
  control.lease_limit = 1;
  const auto engine = model.open({.threads = 2}, control);
  TwoSessions sessions(*engine, kMany);
  sessions.restart();
  EXPECT_TRUE(same_bits(sessions.both_steps(), expected.both_steps));
  EXPECT_EQ(control.most_leases, 1u);
}

}  // namespace
}  // namespace moeflux
