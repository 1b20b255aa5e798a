// What happens when the budget for the states of sessions is used up.

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <vector>

#include "engine/testing/test_models.h"

namespace moeflux {
namespace {

class UnderPressure : public OnSmallModels {
 protected:
  // An engine with room for `sessions` sessions of up to 256 positions that run a step, one at a time.
  std::shared_ptr<Engine> opened(std::uint64_t sessions, std::function<bool()> release = {}) {
    const StateShape shape = state_shape_of(config);
    return model.open({.threads = 1,
                       .context = 600,
                       .step_rows = 64,
                       .kv_budget_bytes = sessions * shape.session_bytes(256) + shape.recurrent_block_bytes(),
                       .release_snapshots = std::move(release)});
  }
  Tokens text(const Engine& engine, std::uint32_t count) { return random_tokens(engine, count); }
};
INSTANTIATE_TEST_SUITE_P(, UnderPressure, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(UnderPressure, TheOwnerIsAskedToReleaseSnapshotsUntilTheStepFits) {
  std::vector<Snapshot> kept;
  int asked = 0;
  const auto engine = opened(3, [&] {
    ++asked;
    if (kept.empty()) return false;
    kept.pop_back();
    return true;
  });
  for (std::uint32_t seed = 0; seed < 2; ++seed) {
    Session session = new_session(*engine);
    ASSERT_TRUE(session.extend(random_tokens(*engine, 100, seed)));
    kept.push_back(session.snapshot());
  }
  EXPECT_EQ(asked, 0);
  Session session = new_session(*engine), other = new_session(*engine), third = new_session(*engine);
  ASSERT_TRUE(succeeds(session.extend(text(*engine, 200))));
  EXPECT_EQ(asked, 0);
  ASSERT_TRUE(succeeds(other.extend(text(*engine, 200))));
  EXPECT_EQ(asked, 1) << "one snapshot made room";
  const TokenId token(1);
  const Segment segment{&third, {&token, 1}, WantedLogits::none, {}};
  ASSERT_TRUE(succeeds(engine->step({&segment, 1})));
  EXPECT_EQ(asked, 2) << "a step asks as well";
  Session fourth = new_session(*engine);
  EXPECT_TRUE(fails_with(fourth.extend(text(*engine, 10)), ErrorCode::out_of_memory));
  EXPECT_EQ(asked, 3) << "the owner has none left";
  EXPECT_EQ(fourth.position(), 0u);
  EXPECT_TRUE(same_bits(logits_after(session, text(*engine, 3)),
                        fresh_logits(*opened(4), joined(text(*engine, 200), text(*engine, 3)))));
}

TEST_P(UnderPressure, ASessionGivesUpItsLeastRecentlyUsedCheckpoint) {
  const StateShape shape = state_shape_of(config);
  const bool is_recurrent = shape.recurrent_size != 0;
  // Room for the recurrent states of two checkpoints and of the step that runs.
  const auto engine =
      model.open({.threads = 1,
                  .context = 600,
                  .kv_budget_bytes = shape.session_bytes(40) + 2 * shape.recurrent_block_bytes()});
  Session session = new_session(*engine);
  for (int again = 0; again < 4; ++again) {
    ASSERT_TRUE(succeeds(session.extend(text(*engine, 10))));
    if (again < 3) session.checkpoint();
  }
  EXPECT_EQ(session.position(), 40u);
  EXPECT_EQ(session.checkpoint_count(), is_recurrent ? 2u : 3u);
  EXPECT_EQ(session.restore_to(30).has_value(), true);
  EXPECT_EQ(session.restore_to(10).has_value(), !is_recurrent);
}

TEST_P(UnderPressure, APromptThatFitsOnlyWithoutItsCheckpointIsRunWithoutIt) {
  const StateShape shape = state_shape_of(config);
  const bool is_recurrent = shape.recurrent_size != 0;
  const auto engine =
      model.open({.threads = 1,
                  .context = 600,
                  .step_rows = 64,
                  .kv_budget_bytes = shape.session_bytes(200) + shape.recurrent_block_bytes()});
  Session session = new_session(*engine);
  const auto run = session.extend(text(*engine, 200), {}, ExtendOptions{.checkpoint_at = 100},
                                  [](const StepStatistics&) { return Status(); });
  ASSERT_TRUE(succeeds(run));
  EXPECT_EQ(run->rows, 200u);
  EXPECT_EQ(session.checkpoint_count(), is_recurrent ? 0u : 1u);
}

}  // namespace
}  // namespace moeflux
