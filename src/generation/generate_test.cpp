#include "generation/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/testing/states.h"
#include "generation/testing/test_text.h"
#include "io/testing/temporary_directory.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

// Random models with and without recurrent layers. Their vocabulary is a prefix of Tern's.
struct Generating : testing::TestWithParam<const char*> {
  TemporaryDirectory temporary;
  PosixFileSystem files;
  std::shared_ptr<Engine> engine;
  GenerationRequest request;

  void SetUp() override {
    engine = opened(64, 5);
    request.options.sampling.temperature = 0;
    request.options.ignores_end = true;
    request.options.max_tokens = 12;
    for (std::uint32_t i = 0; i < 11; ++i) request.prompt.tokens.emplace_back((i * 37 + 5) % 90);
  }

  std::shared_ptr<Engine> opened(std::uint32_t context, std::uint32_t step_rows) {
    EngineOptions options;
    options.context = context;
    options.step_rows = step_rows;
    return opened(options);
  }
  std::shared_ptr<Engine> opened(EngineOptions options) {
    const bool is_qwen = std::string_view(GetParam()) == "qwen";
    const Manifest manifest = tiny_manifest(is_qwen ? tiny_qwen_config() : tiny_deepseek_config());
    const auto path = write_packed_model(temporary, manifest);
    write_random_weights(temporary, manifest);
    options.threads = 1;
    Result<std::shared_ptr<Engine>> result = Engine::open(files, *PackedModel::open(files, path), options);
    EXPECT_TRUE(result) << result.error().message();
    return *result;
  }

  Session new_session() { return *engine->new_session(); }
  GenerationResult generated(Session& session, Listener& listener) {
    Result<GenerationResult> result = generate(session, tern_text(), request, listener);
    EXPECT_TRUE(result) << result.error().message();
    return result ? *std::move(result) : GenerationResult();
  }
  GenerationResult generated(Session& session) {
    Listener listener;
    return generated(session, listener);
  }
  std::vector<TokenId> fresh_reply() {
    Session session = new_session();
    return generated(session).tokens;
  }
};

TEST_P(Generating, TakesTheMostProbableTokenAtTemperatureZero) {
  Session session = new_session();
  Listener listener;
  const GenerationResult result = generated(session, listener);
  EXPECT_EQ(result.reason, FinishReason::length);
  ASSERT_EQ(result.tokens.size(), 12u);
  EXPECT_EQ(result.tokens, listener.tokens);
  EXPECT_EQ(session.position(), 11u + 11);  // all but the last token

  Session plain = new_session();
  std::vector<float> logits(engine->config().vocabulary);
  ASSERT_TRUE(plain.extend(request.prompt.tokens, logits));
  for (const TokenId token : result.tokens) {
    const auto best = std::ranges::max_element(logits) - logits.begin();
    ASSERT_EQ(token, TokenId(static_cast<std::uint32_t>(best)));
    ASSERT_TRUE(plain.extend(std::span(&token, 1), logits));
  }
}

TEST_P(Generating, CountsItsWork) {
  Session session = new_session();
  Listener listener;
  const GenerationResult result = generated(session, listener);
  EXPECT_EQ(result.statistics.prompt_tokens, 11u);
  EXPECT_EQ(result.statistics.reused_tokens, 0u);
  EXPECT_EQ(result.statistics.reply_tokens, 12u);
  EXPECT_EQ(result.statistics.steps.rows, 11u + 11);
  EXPECT_EQ(listener.prompt.front(), std::pair(0u, 11u));
  EXPECT_EQ(listener.prompt.back(), std::pair(11u, 11u));
  EXPECT_EQ(listener.prompt.size(), 1u + 3);  // steps of 5 rows
}

TEST_P(Generating, ReusesTheTokensOfTheSession) {
  Session session = new_session();
  const std::vector<TokenId> first = generated(session).tokens;
  request.prompt.tokens.insert(request.prompt.tokens.end(), first.begin(), first.end());
  request.prompt.tokens.emplace_back(1);
  const GenerationResult second = generated(session);
  EXPECT_EQ(second.statistics.reused_tokens, 11u + 11);
  EXPECT_EQ(second.statistics.steps.rows, 2u + 11);
  EXPECT_EQ(second.tokens, fresh_reply());
}

TEST_P(Generating, GoesBackToWhereTheNextPromptDiffers) {
  request.prompt.stable_tokens = 9;
  Session session = new_session();
  generated(session);
  EXPECT_EQ(session.checkpoint_count(), 1u);
  request.prompt.tokens[10] = TokenId(2);
  request.prompt.tokens.emplace_back(3);
  const GenerationResult second = generated(session);
  EXPECT_EQ(second.statistics.reused_tokens, std::string_view(GetParam()) == "qwen" ? 9u : 10u);
  EXPECT_EQ(second.tokens, fresh_reply());
}

TEST_P(Generating, RepeatsAnAnswerFromItsCheckpoint) {
  request.prompt.stable_tokens = 9;
  Session session = new_session();
  const GenerationResult first = generated(session), second = generated(session);
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_GE(second.statistics.reused_tokens, 9u);
  EXPECT_LT(second.statistics.reused_tokens, 11u);
}

TEST_P(Generating, StartsOverWithoutACommonPrefix) {
  Session session = new_session();
  generated(session);
  for (TokenId& token : request.prompt.tokens) token = TokenId(token.index() + 1);
  const GenerationResult other = generated(session);
  EXPECT_EQ(other.statistics.reused_tokens, 0u);
  EXPECT_EQ(other.tokens, fresh_reply());
}

TEST_P(Generating, GivesTheSameReplyForAnyStepRowsAndAnyPastOfTheSession) {
  request.options.sampling.temperature = 1.3;
  request.options.sampling.seed = 42;
  const std::vector<TokenId> expected = fresh_reply();
  for (const std::uint32_t step_rows : {1u, 4u, 64u}) {
    const auto other = opened(64, step_rows);
    Session session = *other->new_session();
    ASSERT_TRUE(session.extend(std::span(request.prompt.tokens).first(step_rows % 11)));
    EXPECT_EQ(generated(session).tokens, expected) << step_rows;
  }
}

// As a server does it: several generations share each step.
TEST_P(Generating, GivesTheSameReplyInABatch) {
  request.options.sampling.temperature = 1.3;
  request.options.sampling.seed = 42;
  const std::vector<TokenId> expected = fresh_reply();
  const auto batch_engine = opened(64, 64);
  const std::size_t vocabulary = batch_engine->config().vocabulary;
  SamplingWorkspace workspace(vocabulary);
  Listener listener;
  std::vector<Session> sessions;
  std::vector<Generation> generations;
  std::vector<std::vector<float>> logits(3, std::vector<float>(vocabulary));
  std::vector<Prompt> prompts(3, request.prompt);
  for (std::uint32_t i = 0; i < 3; ++i) {
    if (i != 1) prompts[i].tokens.resize(3 + i, TokenId(0));
    GenerationOptions options = request.options;
    options.sampling.seed = 42 + (i == 1 ? 0 : i);
    options.max_tokens = i == 0 ? 5 : 12;
    sessions.push_back(*batch_engine->new_session());
    generations.push_back(
        *Generation::begin({tern_text(), {}, request.tools}, options, prompts[i], workspace));
  }
  std::vector<std::vector<TokenId>> next(3);
  for (std::size_t i = 0; i < 3; ++i) next[i] = prompts[i].tokens;
  while (true) {
    std::vector<Segment> batch;
    for (std::size_t i = 0; i < 3; ++i)
      if (!generations[i].is_finished())
        batch.push_back({&sessions[i], next[i], WantedLogits::last, logits[i]});
    if (batch.empty()) break;
    ASSERT_TRUE(batch_engine->step(batch));
    for (std::size_t i = 0; i < 3; ++i)
      if (!generations[i].is_finished()) {
        const std::optional<TokenId> token = *generations[i].next(logits[i], listener);
        if (token) next[i] = {*token};
      }
  }
  EXPECT_TRUE(std::ranges::equal(generations[1].tokens(), expected));
}

TEST_P(Generating, CanBeCancelledAndTheSessionCanContinue) {
  const std::vector<TokenId> expected = fresh_reply();
  Session session = new_session();
  const std::atomic<bool> cancel = true;
  request.cancel = &cancel;
  const GenerationResult cancelled = generated(session);
  EXPECT_EQ(cancelled.reason, FinishReason::cancelled);
  EXPECT_TRUE(cancelled.tokens.empty());
  request.cancel = nullptr;
  EXPECT_EQ(generated(session).tokens, expected);
}

TEST_P(Generating, EndsWhenItsListenerStopsIt) {
  const std::vector<TokenId> expected = fresh_reply();
  Session session = new_session();
  Listener listener;
  listener.enough = 3;
  const GenerationResult result = generated(session, listener);
  EXPECT_EQ(result.reason, FinishReason::cancelled);
  EXPECT_TRUE(std::ranges::equal(result.tokens, std::span(expected).first(3)));
  EXPECT_EQ(generated(session).tokens, expected);
}

TEST_P(Generating, EndsAtTheEndOfTheContext) {
  engine = opened(16, 5);
  request.options.max_tokens = GenerationOptions::kNoLimit;
  Session session = new_session();
  const GenerationResult result = generated(session);
  EXPECT_EQ(result.reason, FinishReason::context_full);
  EXPECT_EQ(result.tokens.size(), 16u - 11 + 1);
  EXPECT_EQ(session.position(), 16u);
}

TEST_P(Generating, EndsAtAnEndTokenOfTheModel) {
  const std::vector<TokenId> expected = fresh_reply();
  request.options.ignores_end = false;
  request.options.sampling.logit_bias = {{engine->config().end_tokens[0], 1000.0f}};
  Session session = new_session();
  const GenerationResult result = generated(session);
  EXPECT_EQ(result.reason, FinishReason::end_of_text);
  EXPECT_TRUE(result.tokens.empty());
}

TEST_P(Generating, RefusesInvalidPrompts) {
  Session session = new_session();
  Listener listener;
  request.prompt.tokens.resize(65, TokenId(1));
  const Result<GenerationResult> long_one = generate(session, tern_text(), request, listener);
  ASSERT_FALSE(long_one);
  EXPECT_EQ(long_one.error().code(), ErrorCode::context_full);
  EXPECT_THAT(long_one, test::States("65 tokens", "context of 64"));
  request.prompt.tokens = {TokenId(96)};
  EXPECT_EQ(generate(session, tern_text(), request, listener).error().code(), ErrorCode::token_out_of_range);
  request.prompt.tokens.clear();
  EXPECT_EQ(generate(session, tern_text(), request, listener).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(session.position(), 0u);
}

TEST_P(Generating, ChecksRoomAndMemoryForTheWholePromptBeforeItsFirstStep) {
  // Room for 256 positions: one block of keys and values too few for a prompt of 300 tokens.
  int steps = 0;
  EngineOptions options;
  options.context = 400;
  options.step_rows = 5;
  options.after_step = [&] { ++steps; };
  engine = opened(options);
  options.kv_budget_bytes = state_shape_of(engine->config()).session_bytes(300) - 1;
  engine = opened(options);
  Session session = new_session();
  request.prompt.tokens.assign(300, TokenId(7));
  request.prompt.stable_tokens = 200;
  Listener listener;
  const Result<GenerationResult> refused = generate(session, tern_text(), request, listener);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(steps, 0);
  EXPECT_EQ(session.position(), 0u);
  EXPECT_EQ(engine->state_pool().used_bytes(), 0u);
  EXPECT_EQ(listener.prompt, (std::vector{std::pair(0u, 300u)}));

  request.prompt.tokens.resize(240, TokenId(7));  // and 12 of the reply
  EXPECT_EQ(generated(session).reason, FinishReason::length);
  EXPECT_GT(steps, 0);
}

TEST_P(Generating, GivesBackMemoryThatAStoppedPromptDidNotUse) {
  EngineOptions options;
  options.context = 400;
  options.step_rows = 5;
  engine = opened(options);
  Session session = new_session();
  request.prompt.tokens.assign(300, TokenId(7));
  Listener listener;
  listener.enough = 0;
  const GenerationResult stopped = generated(session, listener);
  EXPECT_EQ(stopped.reason, FinishReason::cancelled);
  EXPECT_EQ(stopped.statistics.steps.rows, 5u);
  EXPECT_EQ(session.position(), 5u);
  EXPECT_EQ(engine->state_pool().used_bytes(), state_shape_of(engine->config()).session_bytes(5));
}

INSTANTIATE_TEST_SUITE_P(Models, Generating, testing::Values("qwen", "deepseek"),
                         [](const auto& named) { return std::string(named.param); });

}  // namespace
}  // namespace moeflux
