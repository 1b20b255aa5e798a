#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/expect_contract.h"
#include "engine/test_models.h"

namespace moeflux {
namespace {

using testing::AllOf;
using testing::Each;
using testing::FloatNear;
using testing::HasSubstr;

std::vector<std::string> isas_of_this_machine() {
  std::vector<std::string> names;
  for (const KernelTable* table : compiled_kernels())
    if (table->runs_here()) names.emplace_back(table->name);
  return names;
}

// ---- Opening ----------------------------------------------------------------------------------------------

class OpeningAnEngine : public testing::Test {
 protected:
  void expect_refused(const EngineOptions& options, ErrorCode code,
                      const testing::Matcher<std::string>& message) {
    const auto engine = model.try_open(options);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code(), code);
    EXPECT_THAT(engine.error().message(), message);
  }
  ModelOnDisk model{small_qwen()};
};

TEST_F(OpeningAnEngine, SettlesWhatWasLeftOpen) {
  const auto engine = model.open({});
  EXPECT_EQ(engine->options().isa, (*select_kernels())->name);
  EXPECT_EQ(engine->kernels().name, engine->options().isa);
  EXPECT_GE(engine->threads(), 1u);
  EXPECT_EQ(engine->options().context, 2048u);  // the model's own, less than 8192
  EXPECT_EQ(engine->options().experts_per_token, 3u);
  EXPECT_EQ(new_session(*engine).context(), 2048u);
  EXPECT_GT(engine->memory_plan().workspace_bytes, 0u);
}

TEST_F(OpeningAnEngine, RefusesKernelsThatItDoesNotHave) {
  expect_refused({.isa = "mmx"}, ErrorCode::invalid_argument, AllOf(HasSubstr("'mmx'"), HasSubstr("scalar")));
}

TEST_F(OpeningAnEngine, RefusesAContextThatTheModelWasNotTrainedFor) {
  expect_refused({.context = 2049}, ErrorCode::invalid_argument, AllOf(HasSubstr("2049"), HasSubstr("2048")));
  EXPECT_EQ(model.open({.threads = 1, .context = 2048})->options().context, 2048u);
}

TEST_F(OpeningAnEngine, RefusesMoreExpertsThanTheModelHasForAToken) {
  expect_refused({.experts_per_token = 4}, ErrorCode::invalid_argument,
                 AllOf(HasSubstr("4 experts a token"), HasSubstr("own 3")));
}

TEST_F(OpeningAnEngine, RefusesStepsOfNoRowsAndThreadsWithoutEnd) {
  expect_refused({.step_rows = 0}, ErrorCode::invalid_argument, HasSubstr("at least one row"));
  expect_refused({.threads = 100'000}, ErrorCode::invalid_argument, HasSubstr("100000 threads"));
}

TEST_F(OpeningAnEngine, RefusesAPathWithoutAModel) {
  PosixFileSystem disk;
  const TemporaryDirectory empty;
  const auto engine = Engine::open(disk, empty / "nothing");
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code(), ErrorCode::not_found);
  EXPECT_THAT(engine.error().message(), HasSubstr("nothing"));
}

TEST_F(OpeningAnEngine, PassesOnWhatIsWrongWithItsExperts) {
  EngineOptions options;
  options.experts = [](const PackedModel&) -> Result<std::unique_ptr<ExpertSource>> {
    return Error(ErrorCode::out_of_memory, "no room for experts");
  };
  expect_refused(options, ErrorCode::out_of_memory, HasSubstr("no room for experts"));
}

// ---- What is wrong with a batch ---------------------------------------------------------------------------

class ABatch : public OnSmallModels {
 protected:
  // Two sessions that have seen something.
  void SetUp() override {
    for (int i = 0; i < 2; ++i) sessions.push_back(new_session(*engine));
    for (Session& session : sessions) ASSERT_TRUE(session.extend(tokens));
  }
  Segment of(std::size_t session, std::span<const TokenId> its_tokens) {
    return {&sessions[session], its_tokens, WantedLogits::none, {}};
  }
  void expect_refused(const std::vector<Segment>& batch, ErrorCode code,
                      const testing::Matcher<std::string>& message) {
    const Result<StepStatistics> done = engine->step(batch);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code(), code);
    EXPECT_THAT(done.error().message(), message);
    for (const Session& session : sessions) {
      EXPECT_EQ(session.position(), 6u);
      EXPECT_EQ(session.tokens().size(), 6u);
    }
  }
  void TearDown() override {  // as if nothing had been tried
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

TEST_P(ABatch, HasASegment) {
  expect_refused({}, ErrorCode::invalid_argument, HasSubstr("at least one segment"));
}

TEST_P(ABatch, HasTokensInEverySegment) {
  expect_refused({of(0, tokens), of(1, {})}, ErrorCode::invalid_argument, HasSubstr("at least one token"));
}

TEST_P(ABatch, HasTokensOfTheVocabularyOnly) {
  Tokens wrong = tokens;
  wrong[4] = TokenId(100);
  expect_refused({of(0, tokens), of(1, wrong)}, ErrorCode::token_out_of_range,
                 AllOf(HasSubstr("token 100"), HasSubstr("vocabulary's 100")));
  wrong[4] = TokenId(~0u);
  expect_refused({of(0, wrong)}, ErrorCode::token_out_of_range, HasSubstr("4294967295"));
}

TEST_P(ABatch, FitsIntoTheContext) {
  const Tokens many = random_tokens(*engine, 15);
  expect_refused({of(0, tokens), of(1, many)}, ErrorCode::context_full,
                 AllOf(HasSubstr("15 tokens"), HasSubstr("position 6"), HasSubstr("context of 20")));
}

TEST_P(ABatch, HasASessionOnce) {
  expect_refused({of(0, tokens), of(1, tokens), of(0, tokens)}, ErrorCode::invalid_argument,
                 HasSubstr("only once"));
}

TEST_P(ABatch, HasNoMoreRowsThanAStep) {
  const Tokens many = random_tokens(*engine, 7);
  expect_refused({of(0, tokens), of(1, many)}, ErrorCode::invalid_argument,
                 AllOf(HasSubstr("13 rows"), HasSubstr("step_rows, 12")));
}

TEST_P(ABatch, KeepsTheContractsOfItsCaller) {
  const auto other = model.open();
  EXPECT_CONTRACT((void)other->step(std::vector{of(0, tokens)}), "a session is stepped by its own engine");
  Logits small(99);
  EXPECT_CONTRACT((void)engine->step(std::vector{Segment{&sessions[0], tokens, WantedLogits::last, small}}),
                  "room for the logits that are wanted");
}

TEST_P(ABatch, AtTheEndOfTheContextIsTheLast) {
  ASSERT_TRUE(sessions[0].extend(random_tokens(*engine, 14)));
  EXPECT_EQ(sessions[0].position(), 20u);
  const Result<StepStatistics> full = sessions[0].extend(std::span(tokens).first(1));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code(), ErrorCode::context_full);
  sessions[0] = new_session(*engine);
  ASSERT_TRUE(sessions[0].extend(tokens));
}

TEST_P(ABatch, BeyondTheBudgetForKeysAndValuesMovesNothing) {
  const std::uint64_t of_one = state_shape_of(config).kv_bytes(1);
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

TEST_P(ABatch, ManyTokensAreCheckedBeforeTheFirstOfTheirSteps) {
  const std::uint64_t of_one = state_shape_of(config).kv_bytes(1);
  const auto small = model.open({.threads = 1, .context = 400, .step_rows = 4, .kv_budget_bytes = of_one});
  Session session = new_session(*small);
  const auto expect_refused = [&](std::size_t count, std::size_t wrong_at, ErrorCode code) {
    Tokens many(count, TokenId(1));
    if (wrong_at < count) many[wrong_at] = TokenId(config.vocabulary);
    const Result<StepStatistics> refused = session.extend(many);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), code) << refused.error().message();
    EXPECT_EQ(session.position(), 0u);
    EXPECT_EQ(small->kv_pool().used_bytes(), 0u);
  };
  expect_refused(30, 29, ErrorCode::token_out_of_range);
  expect_refused(401, 401, ErrorCode::context_full);
  expect_refused(300, 300, ErrorCode::out_of_memory);  // of two blocks a layer there is room for one
  ASSERT_TRUE(session.extend(Tokens(256, TokenId(1))));
  EXPECT_EQ(session.position(), 256u);
}

// ---- How tokens are cut into steps ------------------------------------------------------------------------

class CuttingTokens : public OnSmallModels {
 protected:
  // Logits of every token, in steps of at most `rows`.
  static Logits in_steps_of(Engine& engine, const Tokens& tokens, std::size_t rows) {
    Session session = new_session(engine);
    Logits all;
    for (std::size_t first = 0; first < tokens.size(); first += rows) {
      const auto some = std::span(tokens).subspan(first, std::min(rows, tokens.size() - first));
      const Logits logits = all_logits(session, some);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  // The same in the middle of four other sessions that do something else.
  static Logits among_others(Engine& engine, const Tokens& tokens) {
    const std::size_t vocabulary = engine.config().vocabulary;
    std::vector<Session> sessions;
    std::vector<Tokens> others;
    std::vector<std::size_t> done(4);
    for (std::uint32_t i = 0; i < 5; ++i) sessions.push_back(new_session(engine));
    for (std::uint32_t i = 0; i < 4; ++i) others.push_back(random_tokens(engine, 200, 20 + i));
    Logits all(tokens.size() * vocabulary), last(vocabulary);
    const auto other = [&](std::size_t i, std::size_t count, WantedLogits logits) -> Segment {
      const std::size_t first = std::exchange(done[i], (done[i] + count) % 190);
      return {&sessions[i], std::span(others[i]).subspan(first, count), logits,
              logits == WantedLogits::last ? std::span(last) : std::span<float>()};
    };
    for (std::size_t first = 0, rows = 1; first < tokens.size(); first += rows, rows = rows % 5 + 2) {
      rows = std::min(rows, tokens.size() - first);
      const std::span<float> out = std::span(all).subspan(first * vocabulary, rows * vocabulary);
      step(engine, {other(0, 1, WantedLogits::last),
                    other(1, 1 + rows % 4, WantedLogits::none),
                    {&sessions[4], std::span(tokens).subspan(first, rows), WantedLogits::all, out},
                    other(2, 3, WantedLogits::none),
                    other(3, 1, WantedLogits::last)});
    }
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(, CuttingTokens, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(CuttingTokens, ChangesNoBitWithAnyKernelsAndThreads) {
  const Tokens tokens = random_tokens(*model.open(), 36);  // more than kFewRows at once
  for (const Precision precision : {Precision::exact, Precision::fast}) {
    Logits expected;
    for (const std::string& isa : isas_of_this_machine())
      for (const unsigned threads : {1u, 2u}) {
        const auto engine =
            model.open({.precision = precision, .isa = isa, .threads = threads, .step_rows = 64});
        if (expected.empty()) expected = in_steps_of(*engine, tokens, 36);
        for (const std::size_t rows : {36u, 1u, 7u})
          EXPECT_TRUE(same_bits(in_steps_of(*engine, tokens, rows), expected))
              << isa << ", " << threads << " threads, " << rows << " rows a step, " << name_of(precision);
        EXPECT_TRUE(same_bits(among_others(*engine, tokens), expected))
            << isa << ", " << threads << " threads, " << name_of(precision);
      }
  }
}

TEST_P(CuttingTokens, ChangesNoBitOverBlocksOf256Positions) {
  const Tokens tokens = random_tokens(*model.open(), 530);
  const Logits expected = in_steps_of(*model.open({.threads = 1, .step_rows = 530}), tokens, 530);
  for (const unsigned threads : {1u, 2u}) {
    const auto engine = model.open({.threads = threads, .step_rows = 600});
    for (const std::size_t rows : {530u, 1u, 7u, 256u})
      EXPECT_TRUE(same_bits(in_steps_of(*engine, tokens, rows), expected))
          << threads << " threads, " << rows << " rows a step";
  }
  EXPECT_TRUE(same_bits(among_others(*model.open({.threads = 2}), tokens), expected));
}

// Over two blocks, whatever the keys and values are kept as; and each is another arithmetic, but a near one.
TEST_P(CuttingTokens, ChangesNoBitWithKeysAndValuesInFewerBytes) {
  constexpr std::size_t kTokens = 270;
  const Tokens tokens = random_tokens(*model.open(), kTokens);
  const Logits whole = in_steps_of(
      *model.open({.precision = Precision::exact, .threads = 1, .step_rows = kTokens}), tokens, kTokens);
  for (const auto& [numbers_of_kv, precision_of_all] :
       {std::pair(KvNumbers::bf16, Precision::exact), std::pair(KvNumbers::int8, Precision::exact),
        std::pair(KvNumbers::int8, Precision::fast)}) {
    const KvNumbers numbers = numbers_of_kv;
    const Precision precision = precision_of_all;
    const auto open = [&](const std::string& isa, unsigned threads) {
      return model.open({.precision = precision,
                         .isa = isa,
                         .threads = threads,
                         .step_rows = kTokens,
                         .kv_numbers = numbers});
    };
    const Logits expected = in_steps_of(*open("", 1), tokens, kTokens);
    for (const std::string& isa : isas_of_this_machine())
      EXPECT_TRUE(same_bits(in_steps_of(*open(isa, 2), tokens, kTokens), expected))
          << isa << ", " << name_of(numbers);
    for (const std::size_t rows : {1u, 7u})
      EXPECT_TRUE(same_bits(in_steps_of(*open("", 2), tokens, rows), expected))
          << rows << " rows a step, " << name_of(numbers);
    EXPECT_FALSE(same_bits(expected, whole)) << name_of(numbers);
    double error = 0;  // of the first row, before small differences choose other experts
    for (std::size_t i = 0; i < whole.size() / kTokens; ++i)
      error = std::max(error, std::fabs(double{whole[i]} - double{expected[i]}));
    EXPECT_LT(error, 0.5) << name_of(numbers);
  }
}

TEST_P(CuttingTokens, ByStepRowsChangesNoBit) {
  const Tokens tokens = random_tokens(*model.open(), 100);
  Logits expected;
  for (const std::uint32_t step_rows : {1u, 3u, 32u, 33u, 64u, 100u, 512u}) {
    const auto engine = model.open({.threads = 2, .context = 128, .step_rows = step_rows});
    Session session = new_session(*engine);
    Logits logits(config.vocabulary);
    ASSERT_TRUE(session.extend(tokens, logits));
    EXPECT_EQ(session.position(), 100u);
    if (expected.empty()) expected = logits;
    EXPECT_TRUE(same_bits(logits, expected)) << step_rows;
  }
}

// ---- Sessions ---------------------------------------------------------------------------------------------

using ASession = OnSmallModels;
INSTANTIATE_TEST_SUITE_P(, ASession, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(ASession, GivesTheSameLogitsHoweverManyAreWanted) {
  const auto engine = model.open({.threads = 2});
  const Tokens tokens = random_tokens(*engine, 70);
  Session all = new_session(*engine), last = new_session(*engine), none = new_session(*engine);
  const Logits every = all_logits(all, tokens);
  EXPECT_TRUE(same_bits(logits_after(last, tokens), row_of(*engine, every, 69)));
  step(*engine, {{&none, std::span(tokens).first(69), WantedLogits::none, {}}});
  EXPECT_TRUE(same_bits(logits_after(none, std::span(tokens).last(1)), row_of(*engine, every, 69)));
  for (const Session* session : {&all, &last, &none}) {
    EXPECT_EQ(session->position(), 70u);
    EXPECT_TRUE(std::ranges::equal(session->tokens(), tokens));
  }
  EXPECT_FALSE(same_bits(row_of(*engine, every, 68), row_of(*engine, every, 69)));  // they do differ
}

// Keeps what the output head is multiplied with.
class FinalNormObserver : public IdleObserver {
 public:
  void saw(StepPoint point, LayerId, std::span<const float> rows, std::uint32_t) override {
    if (point == StepPoint::final_norm) final_norm.assign(rows.begin(), rows.end());
  }
  std::vector<float> final_norm;
};

TEST_P(ASession, GivesTheProductsOfTheOutputHead) {
  for (const auto& [tied, precision, error] :
       {std::tuple(false, Precision::exact, 1e-5), std::tuple(true, Precision::exact, 1e-5),
        std::tuple(true, Precision::fast, 1e-3)}) {
    config.tied_embeddings = tied;
    const ModelOnDisk of_its_own(config);
    const auto engine = of_its_own.open({.precision = precision});
    Session session = new_session(*engine);
    FinalNormObserver observer;
    const Logits logits = logits_after(session, random_tokens(*engine, 5), {.observer = &observer});
    const PackedTensor& tensor = *engine->model().find(tied ? "embed_tokens" : "lm_head");
    std::vector<std::byte> bytes(tensor.bytes);
    ASSERT_TRUE(engine->model().resident_file().read_exactly(tensor.offset, bytes));
    const TiledMatrix head{tensor.format.rows, tensor.format.cols, tensor.format.encoding, bytes.data(),
                           tile16::block_bytes(tensor.format.encoding, tensor.format.cols)};
    std::vector<float> row(config.dim);
    for (std::uint32_t token = 0; token < config.vocabulary; ++token) {
      tile16::decode_row(head, token, row);
      double expected = 0;
      for (std::uint32_t c = 0; c < config.dim; ++c)
        expected += static_cast<double>(row[c]) * static_cast<double>(observer.final_norm[c]);
      ASSERT_NEAR(logits[token], expected, error) << token;
    }
  }
}

TEST_P(ASession, IsAsNewWhenItIsCleared) {
  const auto engine = model.open();
  const Tokens tokens = random_tokens(*engine, 30), others = random_tokens(*engine, 300, 2);
  Session session = new_session(*engine);
  const Logits expected = all_logits(session, tokens);
  for (int again = 0; again < 2; ++again) {
    ASSERT_TRUE(session.extend(others));
    session.clear();
    EXPECT_EQ(session.position(), 0u);
    EXPECT_TRUE(session.tokens().empty());
    EXPECT_TRUE(same_bits(all_logits(session, tokens), expected));
  }
}

TEST_P(ASession, StandsAfterTheLastStepThatSucceeded) {
  const auto engine = model.open({.threads = 1, .step_rows = 8});
  const Tokens tokens = random_tokens(*engine, 20);
  Session session = new_session(*engine), undisturbed = new_session(*engine);
  Logits expected(config.vocabulary), logits(config.vocabulary);
  ASSERT_TRUE(undisturbed.extend(tokens, expected));
  std::atomic<bool> cancel = false;
  CountingObserver in_the_third_step(cancel, static_cast<std::uint32_t>(2 * config.layers.size() + 1));
  const Result<StepStatistics> cancelled =
      session.extend(tokens, logits, {.observer = &in_the_third_step, .cancel = &cancel});
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code(), ErrorCode::cancelled);
  EXPECT_EQ(session.position(), 16u);
  ASSERT_TRUE(session.extend(std::span(tokens).subspan(session.position()), logits));
  EXPECT_TRUE(same_bits(logits, expected));
}

TEST_P(ASession, ExtendedByNothingStaysWhereItIs) {
  const auto engine = model.open();
  Session session = new_session(*engine);
  const Result<StepStatistics> counts = session.extend({});
  ASSERT_TRUE(counts);
  EXPECT_EQ(*counts, StepStatistics{});
  EXPECT_EQ(session.position(), 0u);
}

TEST_P(ASession, KeepsItsEngineAlive) {
  auto engine = model.open();
  const Tokens tokens = random_tokens(*engine, 10);
  Session session = new_session(*engine);
  const Logits expected = logits_after(session, tokens);
  session.clear();
  engine.reset();
  EXPECT_TRUE(same_bits(logits_after(session, tokens), expected));
}

TEST_P(ASession, MovesWithAllThatItRemembers) {
  const auto engine = model.open(), other_engine = model.open();
  const Tokens tokens = random_tokens(*engine, 300), next = random_tokens(*engine, 4, 2);
  Session first = new_session(*engine);
  ASSERT_TRUE(first.extend(tokens));
  Session undisturbed = new_session(*engine);
  ASSERT_TRUE(undisturbed.extend(tokens));
  const Logits expected = logits_after(undisturbed, next);

  Session moved(std::move(first));
  Session assigned = new_session(*other_engine);  // the last thing that holds that engine may be this session
  ASSERT_TRUE(assigned.extend(next));
  assigned = std::move(moved);
  EXPECT_EQ(&assigned.engine(), engine.get());
  EXPECT_EQ(assigned.position(), 300u);
  EXPECT_TRUE(same_bits(logits_after(assigned, next), expected));
}

TEST_P(ASession, StepsOnAnyThreadBesideOthers) {
  const auto engine = model.open({.threads = 2});
  const auto run = [&](std::uint32_t seed) {
    Session session = new_session(*engine);
    Logits all;
    for (const TokenId token : random_tokens(*engine, 25, seed)) {
      const Logits logits = logits_after(session, {&token, 1});
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  };
  const Logits expected = run(1), expected_other = run(2);
  Logits found, found_other;
  std::thread other([&] { found_other = run(2); });
  found = run(1);
  other.join();
  EXPECT_TRUE(same_bits(found, expected));
  EXPECT_TRUE(same_bits(found_other, expected_other));
}

TEST_P(ASession, OfEveryRowFitsIntoAStepAtTheEndOfTheContext) {
  const auto engine = model.open({.threads = 2, .context = 300, .step_rows = 12});
  std::vector<Session> sessions;
  for (int i = 0; i < 12; ++i) sessions.push_back(new_session(*engine));
  const Tokens tokens = random_tokens(*engine, 300);
  for (Session& session : sessions) ASSERT_TRUE(session.extend(std::span(tokens).first(299)));
  std::vector<Logits> logits(12, Logits(config.vocabulary));
  std::vector<Segment> batch;
  for (std::size_t i = 0; i < 12; ++i)
    batch.push_back({&sessions[i], std::span(tokens).last(1), WantedLogits::last, logits[i]});
  IdleObserver observer;
  step(*engine, batch, {.observer = &observer});
  for (const Logits& one : logits) EXPECT_TRUE(same_bits(one, logits[0]));
}

// ---- Fewer experts ----------------------------------------------------------------------------------------

using FewerExperts = OnSmallModels;
INSTANTIATE_TEST_SUITE_P(, FewerExperts, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(FewerExperts, AreAnotherModel) {
  const auto whole = model.open(), fewer = model.open({.threads = 1, .experts_per_token = 1});
  const Tokens tokens = random_tokens(*whole, 50);
  Session session_of_whole = new_session(*whole), session = new_session(*fewer);
  ChoiceObserver of_whole, of_fewer;
  const Logits expected = all_logits(session_of_whole, tokens, {.observer = &of_whole});
  const Logits logits = all_logits(session, tokens, {.observer = &of_fewer});
  EXPECT_FALSE(same_bits(logits, expected));
  ASSERT_EQ(of_fewer.layers.size(), of_whole.layers.size());
  const std::uint32_t own = config.layers.back().mlp.index() == 0
                                ? std::get<MoeConfig>(config.layers.back().mlp).experts_per_token
                                : 0;
  for (const ChoiceObserver::Layer& layer : of_whole.layers) {
    EXPECT_EQ(layer.experts_per_token, own);
    EXPECT_EQ(layer.experts.size(), 50u * own);
  }
  // Weights are those of the chosen ones alone: 1, times 2.5 in the deepseek family.
  const bool is_softmax = config.family == Family::qwen3_5_moe;
  for (const ChoiceObserver::Layer& layer : of_fewer.layers) {
    EXPECT_EQ(layer.experts_per_token, 1u);
    EXPECT_EQ(layer.experts.size(), 50u);
    EXPECT_THAT(layer.weights, Each(FloatNear(is_softmax ? 1.0f : 2.5f, 1e-6f)));
  }
}

TEST_P(FewerExperts, LeaveWeightsThatSumToOne) {
  const auto engine = model.open({.threads = 1, .experts_per_token = 2});
  Session session = new_session(*engine);
  ChoiceObserver observer;
  logits_after(session, random_tokens(*engine, 40), {.observer = &observer});
  const float sum = config.family == Family::qwen3_5_moe ? 1.0f : 2.5f;
  for (const ChoiceObserver::Layer& layer : observer.layers)
    for (std::size_t i = 0; i < layer.weights.size(); i += 2) {
      EXPECT_NEAR(layer.weights[i] + layer.weights[i + 1], sum, 1e-5);
      EXPECT_LT(layer.experts[i], layer.experts[i + 1]);
    }
}

TEST_P(FewerExperts, AsManyAsTheModelHasIsTheModel) {
  const std::uint32_t own = std::get<MoeConfig>(config.layers.back().mlp).experts_per_token;
  const auto whole = model.open(), same = model.open({.threads = 1, .experts_per_token = own});
  const Tokens tokens = random_tokens(*whole, 20);
  Session first = new_session(*whole), second = new_session(*same);
  EXPECT_TRUE(same_bits(all_logits(second, tokens), all_logits(first, tokens)));
}

// A batch whose rows all want other experts visits more of them at once than any row wants.
TEST(ManyExperts, HaveRoomHoweverTheyAreChosen) {
  ModelConfig config = small_qwen();
  for (LayerConfig& layer : config.layers) {
    auto& moe = std::get<MoeConfig>(layer.mlp);
    moe.experts = 64;
    moe.experts_per_token = 2;
    moe.hidden_dim = 512;
  }
  const ModelOnDisk model(config);
  for (const std::uint32_t rows : {8u, 16u, 32u}) {
    const auto engine = model.open({.threads = 1, .context = 64, .step_rows = rows});
    Session session = new_session(*engine);
    ASSERT_TRUE(session.extend(random_tokens(*engine, rows)));
  }
}

// ---- Observing --------------------------------------------------------------------------------------------

class RecordingObserver : public StepObserver {
 public:
  struct Seen {
    std::string what;
    std::uint32_t layer;
    std::size_t rows;
    std::uint32_t cols;
    friend bool operator==(const Seen&, const Seen&) = default;
    friend void PrintTo(const Seen& one, std::ostream* out) {
      *out << one.what << " of layer " << one.layer << ": " << one.rows << " x " << one.cols;
    }
  };
  void saw(StepPoint point, LayerId layer, std::span<const float> rows, std::uint32_t cols) override {
    ASSERT_EQ(rows.size() % cols, 0u);
    seen.push_back({std::string(name_of(point)), layer.index(), rows.size() / cols, cols});
    values.emplace_back(rows.begin(), rows.end());
  }
  void chose(LayerId layer, std::span<const std::uint32_t> experts, std::span<const float> weights,
             std::uint32_t experts_per_token) override {
    ASSERT_EQ(experts.size(), weights.size());
    seen.push_back({"choice", layer.index(), experts.size() / experts_per_token, experts_per_token});
    values.emplace_back(weights.begin(), weights.end());
  }
  bool replace_residual(LayerId layer, std::span<float> rows, std::uint32_t cols) override {
    asked.push_back({"replace", layer.index(), rows.size() / cols, cols});
    if (!replacing || layer.index() != replaced_layer) return false;
    replacing(rows);
    return true;
  }
  const std::vector<float>& value_of(const std::string& what, std::uint32_t layer) const {
    for (std::size_t i = 0; i < seen.size(); ++i)
      if (seen[i].what == what && seen[i].layer == layer) return values[i];
    ADD_FAILURE() << what << " of layer " << layer << " was not seen";
    return values.front();
  }

  std::vector<Seen> seen, asked;
  std::vector<std::vector<float>> values;
  std::uint32_t replaced_layer = 0;
  std::function<void(std::span<float>)> replacing;
};

class Observing : public OnSmallModels {
 protected:
  // What a step of `rows` rows shows, of which `wanted` have logits.
  std::vector<RecordingObserver::Seen> expected_points(std::size_t rows, std::size_t wanted) const {
    std::vector<RecordingObserver::Seen> points = {{"embedding", 0, rows, config.dim}};
    for (std::uint32_t i = 0; i < config.layers.size(); ++i) {
      for (const char* point : {"normed", "mixed", "mlp_normed"})
        points.push_back({point, i, rows, config.dim});
      if (const auto* moe = std::get_if<MoeConfig>(&config.layers[i].mlp)) {
        points.push_back({"router_logits", i, rows, moe->experts});
        points.push_back({"choice", i, rows, moe->experts_per_token});
        points.push_back({"shared", i, rows, config.dim});
        points.push_back({"routed", i, rows, config.dim});
      }
      points.push_back({"residual", i, rows, config.dim});
    }
    const auto last = static_cast<std::uint32_t>(config.layers.size()) - 1;
    if (wanted != 0) points.push_back({"final_norm", last, wanted, config.dim});
    return points;
  }
};
INSTANTIATE_TEST_SUITE_P(, Observing, testing::Values("qwen", "deepseek"), name_of_model);

TEST_P(Observing, SeesEveryPointInOrder) {
  const auto engine = model.open({.threads = 2});
  const Tokens tokens = random_tokens(*engine, 40);
  for (const std::size_t rows : {1u, 5u, 40u}) {
    Session session = new_session(*engine);
    RecordingObserver all, last, none;
    all_logits(session, std::span(tokens).first(rows), {.observer = &all});
    logits_after(session, std::span(tokens).first(rows), {.observer = &last});
    step(*engine, {{&session, std::span(tokens).first(rows), WantedLogits::none, {}}}, {.observer = &none});
    EXPECT_EQ(all.seen, expected_points(rows, rows));
    EXPECT_EQ(last.seen, expected_points(rows, 1));
    EXPECT_EQ(none.seen, expected_points(rows, 0));
    ASSERT_EQ(all.asked.size(), config.layers.size());
    for (std::uint32_t i = 0; i < config.layers.size(); ++i)
      EXPECT_EQ(all.asked[i], (RecordingObserver::Seen{"replace", i, rows, config.dim}));
  }
}

TEST_P(Observing, SeesTheRowsOfAllSessionsInTheOrderOfTheBatch) {
  const auto engine = model.open();
  const Tokens tokens = random_tokens(*engine, 6);
  Session alone = new_session(*engine), first = new_session(*engine), second = new_session(*engine);
  RecordingObserver of_alone, of_both;
  Logits logits(config.vocabulary);
  logits_after(alone, std::span(tokens).first(2), {.observer = &of_alone});
  step(*engine,
       {{&first, std::span(tokens).last(4), WantedLogits::none, {}},
        {&second, std::span(tokens).first(2), WantedLogits::last, logits}},
       {.observer = &of_both});
  EXPECT_EQ(of_both.seen, expected_points(6, 1));
  for (std::size_t i = 0; i < of_alone.values.size(); ++i) {
    const std::vector<float>& expected = of_alone.values[i];
    const std::span<const float> found = std::span(of_both.values[i]).last(expected.size());
    EXPECT_TRUE(same_bits(found, expected)) << of_alone.seen[i].what;
  }
}

TEST_P(Observing, ChangesNoBit) {
  const auto engine = model.open({.threads = 2});
  const Tokens tokens = random_tokens(*engine, 50);
  for (const std::size_t rows : {5u, 50u}) {
    Session watched = new_session(*engine), unwatched = new_session(*engine);
    RecordingObserver observer;
    const auto some = std::span(tokens).first(rows);
    const Logits logits = all_logits(watched, some, {.observer = &observer});
    EXPECT_TRUE(same_bits(logits, all_logits(unwatched, some)));
    EXPECT_TRUE(same_bits(all_logits(watched, some), all_logits(unwatched, some)));
  }
}

TEST_P(Observing, CanReplaceAResidual) {
  const auto engine = model.open();
  const Tokens tokens = random_tokens(*engine, 9), others = random_tokens(*engine, 9, 2);
  Session session = new_session(*engine), other = new_session(*engine);
  RecordingObserver seen;
  const Logits expected = all_logits(session, tokens, {.observer = &seen});
  const auto last = static_cast<std::uint32_t>(config.layers.size()) - 1;
  // The last layer of another text, run on this one's residual: its keys and values are this one's too.
  RecordingObserver replacing;
  replacing.replaced_layer = last;
  replacing.replacing = [&](std::span<float> rows) {
    std::ranges::copy(seen.value_of("residual", last - 1), rows.begin());
  };
  EXPECT_TRUE(same_bits(all_logits(other, others, {.observer = &replacing}), expected));
  other.clear();
  EXPECT_FALSE(same_bits(all_logits(other, others), expected));
}

}  // namespace
}  // namespace moeflux
