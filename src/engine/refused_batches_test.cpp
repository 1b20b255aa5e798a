// Batches that Engine::step refuses before any work.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/expect_contract.h"
#include "engine/testing/test_models.h"

namespace moeflux {
namespace {

using test::States;

class ABatch : public OnSmallModels {
 protected:
  // Two sessions at position 6.
  void SetUp() override {
    for (int i = 0; i < 2; ++i) sessions.push_back(new_session(*engine));
    for (Session& session : sessions) ASSERT_TRUE(session.extend(tokens));
  }
  Segment of(std::size_t session, std::span<const TokenId> its_tokens) {
    return {&sessions[session], its_tokens, WantedLogits::none, {}};
  }
  void expect_refused(const std::vector<Segment>& batch, ErrorCode code,
                      const testing::Matcher<std::string>& states) {
    const Result<StepStatistics> done = engine->step(batch);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code(), code);
    EXPECT_THAT(done.error().message(), states);
    for (const Session& session : sessions) {
      EXPECT_EQ(session.position(), 6u);
      EXPECT_EQ(session.tokens().size(), 6u);
    }
  }
  // The refused steps had no effect.
  void TearDown() override {
    const Tokens next = random_tokens(*engine, 3, 5);
    Session fresh = new_session(*engine);
    ASSERT_TRUE(fresh.extend(tokens));
    const Logits expected = logits_after(fresh, next);
    for (Session& session : sessions) EXPECT_TRUE(same_bits(logits_after(session, next), expected));
  }

  std::shared_ptr<Engine> engine = model.open({.threads = 1, .context = 20, .step_rows = 12});
  Tokens tokens = random_tokens(*engine, 6);
  std::vector<Session> sessions;
};
INSTANTIATE_TEST_SUITE_P(, ABatch, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(ABatch, NeedsASegment) {
  expect_refused({}, ErrorCode::invalid_argument, States("at least one segment"));
}

TEST_P(ABatch, NeedsTokensInEverySegment) {
  expect_refused({of(0, tokens), of(1, {})}, ErrorCode::invalid_argument, States("at least one token"));
}

TEST_P(ABatch, NeedsTokensOfTheVocabulary) {
  Tokens wrong = tokens;
  wrong[4] = TokenId(100);
  expect_refused({of(0, tokens), of(1, wrong)}, ErrorCode::token_out_of_range,
                 States("token 100", "vocabulary's 100"));
  wrong[4] = TokenId(~0u);
  expect_refused({of(0, wrong)}, ErrorCode::token_out_of_range, States(4294967295));
}

TEST_P(ABatch, MustFitIntoTheContext) {
  const Tokens many = random_tokens(*engine, 15);
  expect_refused({of(0, tokens), of(1, many)}, ErrorCode::context_full,
                 States("15 tokens", "position 6", "context of 20"));
}

TEST_P(ABatch, NamesASessionOnlyOnce) {
  expect_refused({of(0, tokens), of(1, tokens), of(0, tokens)}, ErrorCode::invalid_argument,
                 States("only once"));
}

TEST_P(ABatch, HasAtMostStepRowsRows) {
  const Tokens many = random_tokens(*engine, 7);
  expect_refused({of(0, tokens), of(1, many)}, ErrorCode::invalid_argument,
                 States("13 rows", "step_rows", 12));
}

TEST_P(ABatch, ChecksTheContractsOfItsCaller) {
  const auto other = model.open();
  EXPECT_CONTRACT((void)other->step(std::vector{of(0, tokens)}), "a session is stepped by its own engine");
  Logits small(99);
  EXPECT_CONTRACT((void)engine->step(std::vector{Segment{&sessions[0], tokens, WantedLogits::last, small}}),
                  "room for the logits that are wanted");
}

TEST_P(ABatch, MayReachTheEndOfTheContextButNotPassIt) {
  ASSERT_TRUE(sessions[0].extend(random_tokens(*engine, 14)));
  EXPECT_EQ(sessions[0].position(), 20u);
  const Result<StepStatistics> full = sessions[0].extend(std::span(tokens).first(1));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code(), ErrorCode::context_full);
  sessions[0] = new_session(*engine);
  ASSERT_TRUE(sessions[0].extend(tokens));
}

TEST_P(ABatch, BeyondTheKvBudgetMovesNoSession) {
  const std::uint64_t of_one = state_shape_of(config).session_bytes(1);
  const auto small = model.open({.threads = 1, .kv_budget_bytes = 2 * of_one});
  Session first = new_session(*small), second = new_session(*small), third = new_session(*small);
  const Logits expected = logits_after(first, tokens);
  for (int again = 0; again < 2; ++again) {
    const Result<StepStatistics> refused = small->step(std::vector<Segment>{
        {&second, tokens, WantedLogits::none, {}}, {&third, tokens, WantedLogits::none, {}}});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
    EXPECT_EQ(second.position() + third.position(), 0u);
  }
  first.clear();
  Logits logits(config.vocabulary);
  step(*small, {{&second, tokens, WantedLogits::none, {}}, {&third, tokens, WantedLogits::last, logits}});
  EXPECT_TRUE(same_bits(logits, expected));
}

TEST_P(ABatch, ExtendChecksAllTokensBeforeItsFirstStep) {
  const StateShape shape = state_shape_of(config);
  const auto small = model.open(
      {.threads = 1, .context = 400, .step_rows = 4, .kv_budget_bytes = shape.session_bytes(300) - 1});
  Session session = new_session(*small);
  const auto expect_refused = [&](std::size_t count, std::size_t wrong_at, ErrorCode code) {
    Tokens many(count, TokenId(1));
    if (wrong_at < count) many[wrong_at] = TokenId(config.vocabulary);
    CountingObserver observer;
    const Result<StepStatistics> refused = session.extend(many, {}, {.observer = &observer});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), code) << refused.error().message();
    EXPECT_EQ(observer.rows, 0u);
    EXPECT_EQ(session.position(), 0u);
    EXPECT_EQ(small->state_pool().used_bytes(), 0u);
  };
  expect_refused(30, 29, ErrorCode::token_out_of_range);
  expect_refused(401, 401, ErrorCode::context_full);
  expect_refused(300, 300, ErrorCode::out_of_memory);  // the budget is one block too small
  ASSERT_TRUE(session.extend(Tokens(256, TokenId(1))));
  EXPECT_EQ(session.position(), 256u);
}

}  // namespace
}  // namespace moeflux
