// Rewinds, checkpoints, snapshots and forks: a session always computes the bits of a fresh one with the same
// tokens.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/expect_contract.h"
#include "engine/testing/test_models.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

// A text across two block boundaries, and a detour: another continuation from any place in it.
class InTime : public OnSmallModels {
 protected:
  static constexpr std::uint32_t kEnd = 530;
  // Descending, so that one session can visit each in turn.
  static constexpr std::uint32_t kPlaces[] = {529, 513, 512, 511, 400, 257, 256, 255, 100, 1, 0};

  std::span<const TokenId> text_up_to(std::uint32_t position) const {
    return std::span(text).first(position);
  }
  Session session_at(std::uint32_t position) {
    Session session = new_session(*engine);
    EXPECT_TRUE(succeeds(session.extend(text_up_to(position))));
    return session;
  }
  const Logits& fresh_at(std::uint32_t position) {
    Logits& logits = fresh_[position];
    if (logits.empty()) logits = fresh_logits(*engine, joined(text_up_to(position), detour));
    return logits;
  }
  // Expects the session at `position` of the text, then runs the detour.
  void expect_goes_on_at(Session& session, std::uint32_t position) {
    EXPECT_EQ(session.position(), position);
    EXPECT_TRUE(std::ranges::equal(session.tokens(), text_up_to(position)));
    EXPECT_TRUE(same_bits(logits_after(session, detour), fresh_at(position))) << "from " << position;
    EXPECT_EQ(session.position(), position + detour.size());
    EXPECT_TRUE(std::ranges::equal(session.tokens(), joined(text_up_to(position), detour)));
  }
  bool is_recurrent() const { return config.family == Family::qwen3_5_moe; }

  std::shared_ptr<Engine> engine = model.open({.threads = 1, .context = 1024});
  Tokens text = random_tokens(*engine, kEnd);
  Tokens detour = random_tokens(*engine, 4, 2);

 private:
  std::vector<Logits> fresh_ = std::vector<Logits>(kEnd + 1);
};

// ---- Rewinding --------------------------------------------------------------------------------------------

using Rewinding = InTime;
INSTANTIATE_TEST_SUITE_P(, Rewinding, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(Rewinding, AForkContinuesLikeAFreshRunAndLeavesTheOriginalAlone) {
  const Session whole = session_at(kEnd);
  const Logits ahead = logits_ahead(whole, detour);
  EXPECT_TRUE(same_bits(ahead, fresh_at(kEnd)));
  for (const std::uint32_t place : kPlaces) {
    Session session = fork_of(whole);
    ASSERT_TRUE(succeeds(session.rewind(place)));
    expect_goes_on_at(session, place);
  }
  EXPECT_TRUE(same_bits(logits_ahead(whole, detour), ahead));
}

TEST_P(Rewinding, ASessionRepeatedlyContinuesLikeAFreshRun) {
  Session session = session_at(kEnd);
  for (const std::uint32_t place : kPlaces) {
    ASSERT_TRUE(succeeds(session.rewind(place)));
    expect_goes_on_at(session, place);
  }
}

TEST_P(Rewinding, RunsOnlyTokensAfterTheLastCheckpoint) {
  Session session = new_session(*engine);
  for (const std::uint32_t kept : {90u, 256u, 500u}) {
    ASSERT_TRUE(session.extend(text_up_to(kept).subspan(session.position())));
    session.checkpoint();
  }
  ASSERT_TRUE(session.extend(text_up_to(kEnd).subspan(500)));
  for (const std::uint32_t place : {529u, 513u, 500u, 499u, 257u, 256u, 255u, 90u, 89u, 1u, 0u}) {
    const std::uint32_t base = place >= 500 ? 500 : place >= 256 ? 256 : place >= 90 ? 90 : 0;
    CountingObserver observer;
    ASSERT_TRUE(succeeds(session.rewind(place, {.observer = &observer})));
    EXPECT_EQ(observer.rows, is_recurrent() ? place - base : 0) << place;
    EXPECT_EQ(session.checkpoint_count(), (place >= 90) + (place >= 256) + (place >= 500u)) << place;
    expect_goes_on_at(session, place);
  }
}

TEST_P(Rewinding, ToTheCurrentPositionDoesNothing) {
  Session session = session_at(20);
  session.checkpoint();
  CountingObserver observer;
  ASSERT_TRUE(succeeds(session.rewind(20, {.observer = &observer})));
  ASSERT_TRUE(succeeds(session.rewind_strict(20)));
  EXPECT_EQ(observer.rows, 0u);
  EXPECT_EQ(session.checkpoint_count(), 1u);
  expect_goes_on_at(session, 20);
}

TEST_P(Rewinding, ReturnsBlocksThatAreNoLongerReferenced) {
  Session session = session_at(kEnd);
  const StateShape shape = state_shape_of(config);
  EXPECT_EQ(engine->state_pool().used_bytes(), shape.session_bytes(kEnd));
  session.checkpoint();
  ASSERT_TRUE(session.rewind(257));
  EXPECT_EQ(engine->state_pool().used_bytes(), shape.session_bytes(257));
  ASSERT_TRUE(session.rewind(256));
  EXPECT_EQ(engine->state_pool().used_bytes(), shape.session_bytes(256));
  ASSERT_TRUE(session.rewind(0));
  EXPECT_EQ(engine->state_pool().used_bytes(), 0u);
}

TEST_P(Rewinding, StrictlyRunsNothing) {
  const Session whole = session_at(kEnd);
  for (const std::uint32_t place : kPlaces) {
    if (is_recurrent() && place != 0) continue;
    Session session = fork_of(whole);
    const std::uint64_t copied = engine->state_pool().copied_bytes();
    ASSERT_TRUE(succeeds(session.rewind_strict(place)));
    EXPECT_EQ(engine->state_pool().copied_bytes(), copied);
    expect_goes_on_at(session, place);
  }
}

TEST_P(Rewinding, StrictlyDropsLaterCheckpoints) {
  Session session = new_session(*engine);
  for (const std::uint32_t kept : {0u, 10u, 20u}) {
    ASSERT_TRUE(session.extend(text_up_to(kept).subspan(session.position())));
    session.checkpoint();
  }
  if (!is_recurrent()) {
    ASSERT_TRUE(session.rewind_strict(10));
    EXPECT_EQ(session.checkpoint_count(), 2u);
  }
  ASSERT_TRUE(session.rewind_strict(0));
  EXPECT_EQ(session.checkpoint_count(), 1u);
  ASSERT_TRUE(session.restore_to(0));
  expect_goes_on_at(session, 0);
}

// ---- Checkpoints ------------------------------------------------------------------------------------------

using ACheckpoint = InTime;
INSTANTIATE_TEST_SUITE_P(, ACheckpoint, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(ACheckpoint, RestoresItsPositionAnyNumberOfTimes) {
  Session session = new_session(*engine);
  session.set_max_checkpoints(20);
  std::vector<std::uint32_t> places(std::rbegin(kPlaces), std::rend(kPlaces));
  for (const std::uint32_t place : places) {
    ASSERT_TRUE(session.extend(text_up_to(place).subspan(session.position())));
    session.checkpoint();
  }
  ASSERT_TRUE(session.extend(text_up_to(kEnd).subspan(session.position())));
  EXPECT_EQ(session.checkpoint_count(), places.size());
  for (const std::uint32_t place : kPlaces)
    for (int again = 0; again < 2; ++again) {
      ASSERT_TRUE(succeeds(session.restore_to(place)));
      expect_goes_on_at(session, place);
    }
  EXPECT_EQ(session.checkpoint_count(), 1u);  // the one at 0
}

TEST_P(ACheckpoint, IsUnchangedByLaterTokens) {
  Session session = session_at(250);
  session.checkpoint();
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    ASSERT_TRUE(session.extend(random_tokens(*engine, 3 + 4 * seed, 50 + seed)));  // past 256, or not
    ASSERT_TRUE(succeeds(session.restore_to(250)));
    EXPECT_TRUE(same_bits(logits_ahead(session, detour), fresh_at(250))) << seed;
  }
}

TEST_P(ACheckpoint, ReplacesAnotherAtTheSamePosition) {
  Session session = session_at(20);
  session.checkpoint();
  ASSERT_TRUE(session.rewind(10));
  const Tokens others = random_tokens(*engine, 10, 9);
  ASSERT_TRUE(session.extend(others));
  session.checkpoint();
  EXPECT_EQ(session.checkpoint_count(), 1u);
  ASSERT_TRUE(session.extend(detour));
  ASSERT_TRUE(session.restore_to(20));
  EXPECT_TRUE(std::ranges::equal(session.tokens(), joined(text_up_to(10), others)));
}

TEST_P(ACheckpoint, IsEvictedWhenLeastRecentlyUsedExceptAt0AndTheNewest) {
  Session session = new_session(*engine);
  const auto keep_at = [&](std::uint32_t position) {
    ASSERT_TRUE(session.extend(text_up_to(position).subspan(session.position())));
    session.checkpoint();
  };
  for (const std::uint32_t place : {0u, 10u, 20u, 30u}) keep_at(place);
  EXPECT_EQ(session.checkpoint_count(), 4u);  // the default limit
  keep_at(40);
  EXPECT_EQ(session.checkpoint_count(), 4u);
  EXPECT_TRUE(fails_with(session.restore_to(10), ErrorCode::no_checkpoint));
  session.set_max_checkpoints(1);
  EXPECT_EQ(session.checkpoint_count(), 4u);  // until the next checkpoint
  keep_at(50);
  EXPECT_EQ(session.checkpoint_count(), 2u);
  for (const std::uint32_t place : {20u, 30u, 40u})
    EXPECT_TRUE(fails_with(session.restore_to(place), ErrorCode::no_checkpoint));
  ASSERT_TRUE(session.restore_to(50));
  ASSERT_TRUE(session.restore_to(0));
}

TEST_P(ACheckpoint, CountsItsRecurrentStateAndTokensAgainstTheBudget) {
  const std::uint64_t recurrent = state_shape_of(config).recurrent_bytes();
  Session session = session_at(300);
  session.checkpoint();
  session.set_max_checkpoints(100);
  // Exactly the bytes of those at 300 and 310.
  session.set_checkpoint_budget_bytes(2 * recurrent + (300 + 310) * sizeof(TokenId));
  ASSERT_TRUE(session.extend(text_up_to(310).subspan(300)));
  session.checkpoint();
  EXPECT_EQ(session.checkpoint_count(), 2u);
  ASSERT_TRUE(session.extend(text_up_to(311).subspan(310)));
  session.checkpoint();
  EXPECT_EQ(session.checkpoint_count(), 1u);  // 310 and 311 together exceed it
  ASSERT_TRUE(session.restore_to(311));
  session.set_checkpoint_budget_bytes(0);
  session.checkpoint();
  EXPECT_EQ(session.checkpoint_count(), 1u);  // the newest stays
}

TEST_P(ACheckpoint, IsDroppedWhenTheTimelineChanges) {
  Session session = session_at(10);
  const auto keep = [&] {
    session.checkpoint();
    ASSERT_EQ(session.checkpoint_count(), 1u);
  };
  const Snapshot snapshot = session.snapshot();
  const std::vector<std::byte> without_checkpoints = saved(session);
  keep();
  EXPECT_EQ(fork_of(session).checkpoint_count(), 0u);
  ASSERT_TRUE(session.restore(snapshot));
  EXPECT_EQ(session.checkpoint_count(), 0u);
  keep();
  ASSERT_TRUE(session.load(without_checkpoints));
  EXPECT_EQ(session.checkpoint_count(), 0u);
  keep();
  session.clear();
  EXPECT_EQ(session.checkpoint_count(), 0u);
  EXPECT_TRUE(fails_with(session.restore_to(10), ErrorCode::no_checkpoint));
  expect_goes_on_at(session, 0);
}

// ---- Snapshots and forks ----------------------------------------------------------------------------------

using ASnapshot = InTime;
INSTANTIATE_TEST_SUITE_P(, ASnapshot, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(ASnapshot, RestoresAnyOfSeveralTimelines) {
  Session session = new_session(*engine);
  std::vector<Snapshot> snapshots;
  const std::vector<std::uint32_t> places = {0, 1, 255, 256, 257, 512, 513};
  for (const std::uint32_t place : places) {
    ASSERT_TRUE(session.extend(text_up_to(place).subspan(session.position())));
    Snapshot snapshot = session.snapshot();
    snapshots.push_back(std::move(snapshot));
  }
  for (const std::size_t i : {6u, 0u, 3u, 1u, 5u, 2u, 4u, 6u, 3u}) {
    ASSERT_TRUE(succeeds(session.restore(snapshots[i])));
    expect_goes_on_at(session, places[i]);
  }
}

TEST_P(ASnapshot, OutlivesItsSessionAndKeepsTheEngineAlive) {
  std::optional<Snapshot> snapshot;
  Logits expected;
  {
    const auto own_engine = model.open();
    Session session = new_session(*own_engine);
    ASSERT_TRUE(session.extend(text_up_to(300)));
    expected = logits_ahead(session, detour);
    snapshot = session.snapshot();
  }
  EXPECT_EQ(snapshot->position(), 300u);
  EXPECT_TRUE(std::ranges::equal(snapshot->tokens(), text_up_to(300)));
  EXPECT_TRUE(same_bits(expected, fresh_at(300)));
  const Snapshot copy = *snapshot;
  snapshot.reset();
  EXPECT_EQ(copy.position(), 300u);  // the engine is destroyed with the snapshot
}

TEST_P(ASnapshot, BelongsToTheEngineOfItsSession) {
  const auto other = model.open();
  Session session = session_at(5), elsewhere = new_session(*other);
  const Snapshot snapshot = session.snapshot();
  EXPECT_CONTRACT((void)elsewhere.restore(snapshot), "a snapshot of this session's engine");
}

using AFork = InTime;
INSTANTIATE_TEST_SUITE_P(, AFork, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(AFork, AndItsOriginDivergeInEitherOrder) {
  const Tokens others = random_tokens(*engine, 9, 3);
  for (const std::uint32_t place : {0u, 1u, 250u, 256u, 300u, 512u})
    for (const bool origin_first : {true, false}) {
      Session origin = session_at(place);
      Session fork = fork_of(origin);
      Session* const both[] = {&origin, &fork};
      Session &first = *both[origin_first ? 0 : 1], &second = *both[origin_first ? 1 : 0];
      ASSERT_TRUE(first.extend(others));
      expect_goes_on_at(second, place);
      EXPECT_TRUE(same_bits(logits_after(first, detour),
                            fresh_logits(*engine, joined(joined(text_up_to(place), others), detour))));
    }
}

TEST_P(AFork, CanStepTogetherWithOthers) {
  for (const std::uint32_t place : {100u, 255u, 256u}) {
    Session origin = session_at(place);
    std::vector<Session> forks;
    for (int i = 0; i < 3; ++i) forks.push_back(fork_of(forks.empty() ? origin : forks.back()));
    std::vector<Tokens> ways;
    std::vector<Logits> logits(4, Logits(config.vocabulary));
    for (std::uint32_t i = 0; i < 4; ++i) ways.push_back(random_tokens(*engine, 2 + i, 30 + i));
    for (int round = 0; round < 3; ++round)
      step(*engine, {{&forks[0], ways[0], WantedLogits::last, logits[0]},
                     {&origin, ways[1], WantedLogits::last, logits[1]},
                     {&forks[2], ways[2], WantedLogits::last, logits[2]},
                     {&forks[1], ways[3], WantedLogits::last, logits[3]}});
    for (std::size_t i = 0; i < 4; ++i) {
      const Tokens thrice = joined(joined(ways[i], ways[i]), ways[i]);
      EXPECT_TRUE(same_bits(logits[i], fresh_logits(*engine, joined(text_up_to(place), thrice)))) << i;
    }
  }
}

TEST_P(AFork, OutlivesItsOrigin) {
  std::optional<Session> origin = session_at(300);
  Session fork = fork_of(*origin);
  ASSERT_TRUE(origin->extend(detour));
  origin.reset();
  expect_goes_on_at(fork, 300);
}

TEST_P(AFork, MayRunOnAnotherThread) {
  const Session origin = session_at(250);
  std::vector<Session> forks;
  for (int i = 0; i < 3; ++i) forks.push_back(fork_of(origin));
  // Past the end of the shared block and back, with a save on the way.
  const auto run = [&](Session& session, std::uint32_t seed) {
    for (std::uint32_t round = 0; round < 5; ++round) {
      session.checkpoint();
      EXPECT_TRUE(succeeds(session.extend(random_tokens(*engine, 4, seed + round))));
      const Session other = fork_of(session);
      EXPECT_TRUE(succeeds(session.extend(detour)));
      EXPECT_EQ(saved(other).size(), other.saved_bytes());
      EXPECT_TRUE(succeeds(session.rewind(other.position() - 1)));
    }
    Logits logits(config.vocabulary);
    EXPECT_TRUE(succeeds(session.extend(detour, logits)));
    return logits;
  };
  std::vector<Logits> found(3);
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 3; ++i) threads.emplace_back([&, i] { found[i] = run(forks[i], 100 * i); });
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t i = 0; i < 3; ++i)
    EXPECT_TRUE(same_bits(found[i], fresh_logits(*engine, forks[i].tokens())));
  EXPECT_FALSE(std::ranges::equal(forks[0].tokens(), forks[1].tokens()));
}

// ---- Refused calls ----------------------------------------------------------------------------------------

class Refused : public InTime {
 protected:
  // A session with two checkpoints, which no test changes.
  void SetUp() override {
    for (const std::uint32_t kept : {3u, 12u}) {
      ASSERT_TRUE(session.extend(text_up_to(kept).subspan(session.position())));
      session.checkpoint();
    }
    ASSERT_TRUE(session.extend(text_up_to(20).subspan(12)));
  }
  void expect_unchanged() {
    EXPECT_EQ(session.checkpoint_count(), 2u);
    EXPECT_EQ(session.tokens_begin(), 0u);
    EXPECT_TRUE(std::ranges::equal(session.tokens(), text_up_to(20)));
    EXPECT_TRUE(same_bits(logits_ahead(session, detour), fresh_at(20)));
  }
  void TearDown() override {
    expect_unchanged();
    expect_goes_on_at(session, 20);
    ASSERT_TRUE(succeeds(session.restore_to(12)));
    expect_goes_on_at(session, 12);
    ASSERT_TRUE(succeeds(session.restore_to(3)));
    expect_goes_on_at(session, 3);
  }
  Session session = new_session(*engine);
};
INSTANTIATE_TEST_SUITE_P(, Refused, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(Refused, ExpectingAnotherPosition) {
  EXPECT_TRUE(succeeds(session.expect_position(20)));
  for (const std::uint32_t wrong : {0u, 19u, 21u})
    EXPECT_TRUE(
        fails_with(session.expect_position(wrong), ErrorCode::position_mismatch, "position 20", wrong));
}

TEST_P(Refused, RestoringAMissingCheckpoint) {
  for (const std::uint32_t wrong : {0u, 2u, 4u, 13u, 20u, 21u, ~0u})
    EXPECT_TRUE(fails_with(session.restore_to(wrong), ErrorCode::no_checkpoint, wrong));
}

TEST_P(Refused, RewindingForward) {
  for (const std::uint32_t wrong : {21u, 1024u, ~0u}) {
    EXPECT_TRUE(fails_with(session.rewind(wrong), ErrorCode::invalid_argument, wrong, 20));
    EXPECT_TRUE(fails_with(session.rewind_strict(wrong), ErrorCode::invalid_argument, wrong, 20));
  }
}

TEST_P(Refused, TruncatingARecurrentState) {
  if (!is_recurrent()) return;                          // Rewinding.StrictlyRunsNothing
  for (const std::uint32_t wrong : {1u, 3u, 12u, 19u})  // also where a checkpoint is
    EXPECT_TRUE(fails_with(session.rewind_strict(wrong), ErrorCode::cannot_truncate_recurrent, 20, wrong));
}

TEST_P(Refused, RestoringASnapshotLongerThanTheContext) {
  const auto large = model.open({.threads = 1, .context = 1100});
  Session longer = new_session(*large);
  ASSERT_TRUE(longer.extend(random_tokens(*large, 1025)));
  const Snapshot snapshot = longer.snapshot();
  EXPECT_TRUE(
      fails_with(session.restore(snapshot), ErrorCode::context_full, "1025 positions", "context of 1024"));
}

// ---- Rewinds that fail ------------------------------------------------------------------------------------

class ARewindThatFails : public InTime {
 protected:
  // Steps of 4 rows, so that a rewind takes several.
  ARewindThatFails() { engine = model.open({.threads = 1, .context = 64, .step_rows = 4}, control); }

  // At 25, optionally with a checkpoint at 5.
  Session a_session(bool with_checkpoint) {
    Session session = session_at(5);
    if (with_checkpoint) {
      session.checkpoint();
    }
    EXPECT_TRUE(session.extend(text_up_to(25).subspan(5)));
    return session;
  }
  void expect_unmoved(Session& session, bool with_checkpoint) {
    EXPECT_EQ(session.position(), 25u);
    EXPECT_TRUE(std::ranges::equal(session.tokens(), text_up_to(25)));
    EXPECT_EQ(session.checkpoint_count(), with_checkpoint ? 1u : 0u);
    EXPECT_TRUE(same_bits(logits_ahead(session, detour), fresh_at(25)));
  }
  FailingExperts::Control control;
};
INSTANTIATE_TEST_SUITE_P(, ARewindThatFails, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(ARewindThatFails, MovesNothingWhicheverExpertCallFails) {
  for (const bool with_checkpoint : {false, true}) {
    Session session = a_session(with_checkpoint);
    std::uint64_t faults = 0;
    for (;; ++faults) {
      control.fail_at = control.calls + faults;
      const Result<StepStatistics> rewound = session.rewind(18);
      control.fail_at = FailingExperts::kNever;
      if (rewound) break;
      EXPECT_TRUE(fails_with(rewound, ErrorCode::io_failed, "position 18"));
      expect_unmoved(session, with_checkpoint);
      if (HasFailure()) FAIL() << "after a fault at call " << faults;
    }
    // Each step calls the experts of each layer; a truncation calls none.
    if (is_recurrent())
      EXPECT_GT(faults, 4u * config.layers.size());
    else
      EXPECT_EQ(faults, 0u);
    expect_goes_on_at(session, 18);
  }
}

TEST_P(ARewindThatFails, MovesNothingAtWhicheverLayerItIsCancelled) {
  for (const bool with_checkpoint : {false, true}) {
    Session session = a_session(with_checkpoint);
    const auto layers = static_cast<std::uint32_t>(config.layers.size());
    const std::uint32_t steps = with_checkpoint ? 4 : 5;  // of 13 tokens, or of 18
    for (std::uint32_t after = 0; is_recurrent() && after < steps * layers; ++after) {
      std::atomic<bool> flag = after == 0;
      CountingObserver observer(flag, after);
      const Result<StepStatistics> rewound = session.rewind(18, {.observer = &observer, .cancel = &flag});
      EXPECT_TRUE(fails_with(rewound, ErrorCode::cancelled, "position 18"));
      EXPECT_EQ(observer.layers, after);
      expect_unmoved(session, with_checkpoint);
      if (HasFailure()) FAIL() << "cancelled after " << after << " layers";
    }
    std::atomic<bool> flag = false;
    CountingObserver observer(flag, steps * layers);  // too late
    ASSERT_TRUE(succeeds(session.rewind(18, {.observer = &observer, .cancel = &flag})));
    EXPECT_EQ(observer.layers, is_recurrent() ? steps * layers : 0);
    expect_goes_on_at(session, 18);
  }
}

TEST_P(ARewindThatFails, CanBeRetriedAndTheSessionCanContinueInstead) {
  Session session = a_session(true);
  for (const std::uint64_t call : {3u, 20u, 40u}) {
    control.fail_at = control.calls + call;
    EXPECT_EQ(session.rewind(18).has_value(), !is_recurrent());
    control.fail_at = FailingExperts::kNever;
    if (!is_recurrent()) {
      ASSERT_TRUE(session.extend(text_up_to(25).subspan(18)));
    }
  }
  expect_goes_on_at(session, 25);
  ASSERT_TRUE(succeeds(session.rewind(18)));
  expect_goes_on_at(session, 18);
}

TEST_P(ARewindThatFails, MovesNothingWhenOutOfMemory) {
  const StateShape shape = state_shape_of(config);
  const std::uint64_t of_one = shape.session_bytes(1);
  const std::uint64_t of_step = shape.recurrent_block_bytes();
  engine = model.open({.threads = 1, .context = 64, .kv_budget_bytes = of_one + of_step}, control);
  Session session = session_at(25);
  if (is_recurrent()) {  // the old blocks are kept until the new ones exist
    for (int again = 0; again < 2; ++again)
      EXPECT_TRUE(fails_with(session.rewind(18), ErrorCode::out_of_memory, "position 18"));
    EXPECT_EQ(engine->state_pool().used_bytes(), of_one);
    EXPECT_EQ(session.position(), 25u);
    EXPECT_TRUE(std::ranges::equal(session.tokens(), text_up_to(25)));
    const Logits ahead = logits_after(session, detour);
    session.clear();
    EXPECT_TRUE(same_bits(ahead, fresh_at(25)));
  } else {
    ASSERT_TRUE(succeeds(session.rewind(18)));
    const Logits ahead = logits_after(session, detour);
    session.clear();
    EXPECT_TRUE(same_bits(ahead, fresh_at(18)));
  }
}

TEST_P(ARewindThatFails, AForkWithoutMemoryMovesNeitherSession) {
  const StateShape shape = state_shape_of(config);
  const std::uint64_t of_one = shape.session_bytes(1);
  const std::uint64_t of_step = shape.recurrent_block_bytes();
  engine = model.open({.threads = 1, .context = 64, .kv_budget_bytes = of_one + of_step}, control);
  Session origin = session_at(25);
  {
    Session fork = fork_of(origin);  // shares all blocks
    ASSERT_TRUE(origin.extend(text_up_to(27).subspan(25)));
    for (int again = 0; again < 2; ++again)  // but the fork cannot get rows for itself
      EXPECT_TRUE(fails_with(fork.extend(detour), ErrorCode::out_of_memory));
    EXPECT_EQ(fork.position(), 25u);
    EXPECT_TRUE(std::ranges::equal(fork.tokens(), text_up_to(25)));
    std::swap(origin, fork);
  }
  // It continues once the other session is destroyed.
  const Logits ahead = logits_after(origin, detour);
  origin.clear();
  EXPECT_TRUE(same_bits(ahead, fresh_at(25)));
}

// ---- What it costs ----------------------------------------------------------------------------------------

class At4096Positions : public testing::TestWithParam<const char*> {
 protected:
  static ModelConfig long_config() {
    ModelConfig config = std::string(GetParam()) == "qwen" ? tiny_qwen_config() : tiny_deepseek_config();
    config.max_positions = 5000;
    return config;
  }
  // Checks that no block is copied or acquired during its lifetime.
  class NothingIsCopied {
   public:
    explicit NothingIsCopied(BlockPool& pool) : pool_(pool) {}
    ~NothingIsCopied() {
      EXPECT_EQ(pool_.copied_bytes(), copied_);
      EXPECT_EQ(pool_.used_bytes(), used_);
    }

   private:
    BlockPool& pool_;
    const std::uint64_t copied_ = pool_.copied_bytes(), used_ = pool_.used_bytes();
  };
  // Bytes of `rows` rows of keys and values, in all layers.
  std::uint64_t bytes_of_rows(std::uint64_t rows) const {
    std::uint64_t floats = 0;
    for (const KvShape& kv : shape.kv) floats += std::uint64_t{kv.heads} * (kv.key_dim + kv.value_dim);
    return rows * floats * sizeof(float);
  }

  ModelConfig config = long_config();
  StateShape shape = state_shape_of(config);
  ModelOnDisk model{config};
  std::shared_ptr<Engine> engine = model.open({.threads = 1, .context = 5000});
  BlockPool& pool = engine->state_pool();
};
INSTANTIATE_TEST_SUITE_P(, At4096Positions, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(At4096Positions, NeitherCheckpointsNorForksCopyABlock) {
  Session session = new_session(*engine);
  const Tokens text = random_tokens(*engine, 4110), detour = random_tokens(*engine, 3, 2);
  ASSERT_TRUE(session.extend(std::span(text).first(4096)));
  EXPECT_EQ(pool.used_bytes(), shape.session_bytes(4096));
  const std::uint64_t own = shape.recurrent_bytes() + 4096 * sizeof(TokenId);
  {
    const NothingIsCopied nothing(pool);
    const Snapshot snapshot = session.snapshot();
    EXPECT_EQ(snapshot.own_bytes(), own);
    EXPECT_LT(own, shape.session_bytes(4096) / 20);
    session.checkpoint();
    ASSERT_TRUE(session.restore_to(4096));
    const Session fork = fork_of(session);
    EXPECT_EQ(fork.position(), 4096u);
    ASSERT_TRUE(session.restore(snapshot));
    session.checkpoint();
  }
  // The next rows go to a new block, later ones behind the kept rows of that block: still nothing is copied.
  const std::uint64_t copied = pool.copied_bytes();
  ASSERT_TRUE(session.extend(std::span(text).subspan(4096, 4)));
  session.checkpoint();
  Session fork = fork_of(session);
  ASSERT_TRUE(session.extend(std::span(text).subspan(4100)));
  EXPECT_EQ(pool.copied_bytes(), copied);
  // The checkpoints at 4096 and 4100 keep their recurrent states.
  EXPECT_EQ(pool.used_bytes(), shape.session_bytes(4110) + 2 * shape.recurrent_block_bytes());
  // The second session to write copies the rows it sees of the last block, and no other block.
  const Logits of_fork = logits_after(fork, detour);
  EXPECT_EQ(pool.copied_bytes() - copied, bytes_of_rows(4));
  EXPECT_EQ(pool.used_bytes(),
            shape.session_bytes(4110) + shape.session_bytes(1) + 2 * shape.recurrent_block_bytes());
  ASSERT_TRUE(session.restore_to(4100));
  EXPECT_TRUE(same_bits(logits_after(session, detour), of_fork));
  EXPECT_EQ(pool.copied_bytes() - copied, 2 * bytes_of_rows(4));
}

}  // namespace
}  // namespace moeflux
