// Session::replace_after: going back and running other tokens, as one operation that is checked as a whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/testing/states.h"
#include "engine/testing/test_models.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

class Replacing : public OnSmallModels {
 protected:
  static constexpr std::uint32_t kEnd = 300, kCheckpoint = 100;

  // For a session of `positions` that runs a step and keeps one checkpoint.
  std::uint64_t budget_for(std::uint64_t positions) const {
    return state_shape_of(config).session_bytes(positions) +
           2 * state_shape_of(config).recurrent_block_bytes();
  }
  std::shared_ptr<Engine> opened(std::uint64_t kv_budget_bytes = 0) {
    return model.open(
        {.threads = 1, .context = 600, .kv_budget_bytes = kv_budget_bytes, .after_step = [this] {
           ++steps;
         }});
  }
  // At kEnd of the text, with a checkpoint at kCheckpoint.
  Session session_of(Engine& engine) {
    text = random_tokens(engine, kEnd);
    Session session = new_session(engine);
    EXPECT_TRUE(succeeds(session.extend(std::span(text).first(kCheckpoint))));
    session.checkpoint();
    EXPECT_TRUE(succeeds(session.extend(std::span(text).subspan(kCheckpoint))));
    steps = 0;
    return session;
  }
  Result<StepStatistics> replace(Session& session, std::uint32_t kept, std::span<const TokenId> tokens,
                                 std::span<float> logits = {}) {
    return session.replace_after(kept, tokens, logits, {}, [](const StepStatistics&) { return Status(); });
  }
  bool is_recurrent() const { return config.family == Family::qwen3_5_moe; }
  // Where a session with the checkpoint begins to run again.
  std::uint32_t begin_of(std::uint32_t kept) const {
    if (!is_recurrent()) return kept;
    return kept >= kCheckpoint ? kCheckpoint : 0;
  }

  Tokens text;
  int steps = 0;
};
INSTANTIATE_TEST_SUITE_P(, Replacing, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(Replacing, ContinuesLikeAFreshRunInOneRunOfSteps) {
  const auto engine = opened();
  const Tokens other = random_tokens(*engine, 7, 2);
  for (const std::uint32_t kept : {0u, 1u, 99u, 100u, 101u, 255u, 256u, 257u, 299u, 300u}) {
    Session session = session_of(*engine);
    Logits logits(config.vocabulary);
    const Result<StepStatistics> run = replace(session, kept, other, logits);
    ASSERT_TRUE(succeeds(run));
    const std::uint32_t begin = kept == kEnd ? kEnd : begin_of(kept);
    EXPECT_EQ(run->rows, kept - begin + other.size()) << kept;
    EXPECT_EQ(steps, 1) << kept;
    const Tokens expected = joined(std::span(text).first(kept), other);
    EXPECT_TRUE(std::ranges::equal(session.tokens(), expected));
    EXPECT_TRUE(same_bits(logits, fresh_logits(*engine, expected))) << kept;
    EXPECT_EQ(session.checkpoint_count(), kept >= kCheckpoint ? 1u : 0u);
  }
}

TEST_P(Replacing, ARefusedRequestLeavesTheSessionWhereItWas) {
  const auto engine = opened(budget_for(512));
  Session session = session_of(*engine);
  const auto expect_refused = [&](const Tokens& tokens, ErrorCode code) {
    const Result<StepStatistics> refused = replace(session, 50, tokens);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), code) << refused.error().message();
    EXPECT_EQ(steps, 0);
    EXPECT_TRUE(std::ranges::equal(session.tokens(), text));
    EXPECT_EQ(session.checkpoint_count(), 1u);
  };
  Tokens wrong(20, TokenId(1));
  wrong.back() = TokenId(config.vocabulary);
  expect_refused(wrong, ErrorCode::token_out_of_range);
  expect_refused(Tokens(551, TokenId(1)), ErrorCode::context_full);
  expect_refused(Tokens(463, TokenId(1)), ErrorCode::out_of_memory);  // ends at 513: a block too many
  const Tokens next = random_tokens(*engine, 3, 5);
  EXPECT_TRUE(same_bits(logits_after(session, next), fresh_logits(*opened(), joined(text, next))));
}

TEST_P(Replacing, PositionsAfterTheKeptOnesMakeRoom) {
  const auto engine = opened(budget_for(512));
  Session session = session_of(*engine);
  session.checkpoint();  // holds all blocks of the budget
  const Tokens other = random_tokens(*engine, 400, 2);
  Logits logits(config.vocabulary);
  ASSERT_TRUE(succeeds(replace(session, 0, other, logits)));
  EXPECT_TRUE(same_bits(logits, fresh_logits(*opened(), other)));
}

TEST_P(Replacing, RunsNoStepIfOtherSessionsHoldTheMemory) {
  const auto engine = opened(budget_for(512) + state_shape_of(config).session_bytes(256));
  Session session = session_of(*engine);
  Session other = new_session(*engine);
  ASSERT_TRUE(succeeds(other.extend(Tokens(200, TokenId(1)))));
  session.clear();
  ASSERT_TRUE(succeeds(session.extend(std::span(text).first(200))));
  session.checkpoint();
  Session third = fork_of(session);
  ASSERT_TRUE(succeeds(third.extend(Tokens(20, TokenId(1)))));  // takes the last block
  steps = 0;
  const Result<StepStatistics> refused = replace(session, 150, Tokens(300, TokenId(2)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(steps, 0);
  EXPECT_EQ(session.position(), is_recurrent() ? 0u : 150u) << "what it gave up is documented";
  const Tokens expected = joined(session.tokens(), Tokens(3, TokenId(3)));
  third = new_session(*engine);
  Logits logits(config.vocabulary);
  ASSERT_TRUE(succeeds(session.extend(Tokens(3, TokenId(3)), logits)));
  EXPECT_TRUE(same_bits(logits, fresh_logits(*opened(), expected)));
}

}  // namespace
}  // namespace moeflux
