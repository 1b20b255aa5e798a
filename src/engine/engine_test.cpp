#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/testing/test_models.h"

namespace moeflux {
namespace {

using test::States;
using testing::Each;
using testing::FloatNear;

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
                      const testing::Matcher<std::string>& states) {
    const auto engine = model.try_open(options);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code(), code);
    EXPECT_THAT(engine.error().message(), states);
  }
  ModelOnDisk model{small_qwen()};
};

TEST_F(OpeningAnEngine, ReplacesZerosByDefaults) {
  const auto engine = model.open({});
  EXPECT_EQ(engine->options().isa, (*select_kernels())->name);
  EXPECT_EQ(engine->kernels().name, engine->options().isa);
  EXPECT_GE(engine->threads(), 1u);
  EXPECT_EQ(engine->options().context, 2048u);  // the model's own, less than 8192
  EXPECT_EQ(engine->options().experts_per_token, 3u);
  EXPECT_EQ(new_session(*engine).context(), 2048u);
  EXPECT_GT(engine->memory_plan().workspace_bytes, 0u);
}

TEST_F(OpeningAnEngine, RefusesUnknownKernels) {
  expect_refused({.isa = "mmx"}, ErrorCode::invalid_argument, States("'mmx'", "scalar"));
}

TEST_F(OpeningAnEngine, RefusesAContextLongerThanTheModels) {
  expect_refused({.context = 2049}, ErrorCode::invalid_argument, States(2049, 2048));
  EXPECT_EQ(model.open({.threads = 1, .context = 2048})->options().context, 2048u);
}

TEST_F(OpeningAnEngine, RefusesMoreExpertsPerTokenThanTheModels) {
  expect_refused({.experts_per_token = 4}, ErrorCode::invalid_argument, States("4 experts", 3));
}

TEST_F(OpeningAnEngine, RefusesZeroStepRowsAndTooManyThreads) {
  expect_refused({.step_rows = 0}, ErrorCode::invalid_argument, States("step_rows", 0));
  expect_refused({.threads = 100'000}, ErrorCode::invalid_argument, States(100000, 1024));
}

TEST_F(OpeningAnEngine, ReturnsTheErrorOfItsExperts) {
  EngineOptions options;
  options.experts = [](const PackedModel&) -> Result<std::unique_ptr<ExpertSource>> {
    return Error(ErrorCode::out_of_memory, "no room for experts");
  };
  expect_refused(options, ErrorCode::out_of_memory, States("no room for experts"));
}

// ---- How tokens are cut into steps ------------------------------------------------------------------------

class CuttingTokens : public OnSmallModels {
 protected:
  // The logits of every token, in steps of at most `rows` rows.
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

  // The same, in steps shared with four other sessions.
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

TEST_P(CuttingTokens, ChangesNoBitOnAnyKernelsAndThreads) {
  const Tokens tokens = random_tokens(*model.open(), 36);  // a step of all of them sweeps the experts
  for (const Precision precision : {Precision::exact, Precision::fast}) {
    Logits expected;
    for (const std::string& isa : isas_of_this_machine())
      for (const unsigned threads : {1u, 2u}) {
        const auto engine =
            model.open({.precision = precision, .isa = isa, .threads = threads, .step_rows = 64});
        if (expected.empty()) expected = in_steps_of(*engine, tokens, 36);
        for (const std::size_t rows : {36u, 1u, 7u})
          EXPECT_TRUE(same_bits(in_steps_of(*engine, tokens, rows), expected))
              << isa << ", " << threads << " threads, " << rows << " rows per step, " << name_of(precision);
        EXPECT_TRUE(same_bits(among_others(*engine, tokens), expected))
            << isa << ", " << threads << " threads, " << name_of(precision);
      }
  }
}

TEST_P(CuttingTokens, ChangesNoBitAcrossBlocksOf256Positions) {
  const Tokens tokens = random_tokens(*model.open(), 530);
  const Logits expected = in_steps_of(*model.open({.threads = 1, .step_rows = 530}), tokens, 530);
  for (const unsigned threads : {1u, 2u}) {
    const auto engine = model.open({.threads = threads, .step_rows = 600});
    for (const std::size_t rows : {530u, 1u, 7u, 256u})
      EXPECT_TRUE(same_bits(in_steps_of(*engine, tokens, rows), expected))
          << threads << " threads, " << rows << " rows per step";
  }
  EXPECT_TRUE(same_bits(among_others(*model.open({.threads = 2}), tokens), expected));
}

// Over two blocks, for every KV dtype. Each dtype computes other bits, but close ones.
TEST_P(CuttingTokens, ChangesNoBitWithNarrowKeysAndValues) {
  constexpr std::size_t kTokens = 270;
  const Tokens tokens = random_tokens(*model.open(), kTokens);
  const Logits whole = in_steps_of(
      *model.open({.precision = Precision::exact, .threads = 1, .step_rows = kTokens}), tokens, kTokens);
  for (const auto& [numbers_of_kv, precision_of_all] :
       {std::pair(KvDtype::bf16, Precision::exact), std::pair(KvDtype::int8, Precision::exact),
        std::pair(KvDtype::int8, Precision::fast)}) {
    const KvDtype numbers = numbers_of_kv;
    const Precision precision = precision_of_all;
    const auto open = [&](const std::string& isa, unsigned threads) {
      return model.open({.precision = precision,
                         .isa = isa,
                         .threads = threads,
                         .step_rows = kTokens,
                         .kv_dtype = numbers});
    };
    const Logits expected = in_steps_of(*open("", 1), tokens, kTokens);
    for (const std::string& isa : isas_of_this_machine())
      EXPECT_TRUE(same_bits(in_steps_of(*open(isa, 2), tokens, kTokens), expected))
          << isa << ", " << name_of(numbers);
    for (const std::size_t rows : {1u, 7u})
      EXPECT_TRUE(same_bits(in_steps_of(*open("", 2), tokens, rows), expected))
          << rows << " rows per step, " << name_of(numbers);
    EXPECT_FALSE(same_bits(expected, whole)) << name_of(numbers);
    double error = 0;  // of the first row only: later, small differences choose other experts
    for (std::size_t i = 0; i < whole.size() / kTokens; ++i)
      error = std::max(error, std::fabs(double{whole[i]} - double{expected[i]}));
    EXPECT_LT(error, 0.5) << name_of(numbers);
  }
}

TEST_P(CuttingTokens, ChangesNoBitForAnyStepRows) {
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

TEST_P(ASession, ComputesTheSameLogitsHoweverManyAreWanted) {
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
  EXPECT_FALSE(same_bits(row_of(*engine, every, 68), row_of(*engine, every, 69)));  // rows do differ
}

// Records the input of the output head.
class FinalNormObserver : public IdleObserver {
 public:
  void saw(StepPoint point, LayerId, std::span<const float> rows, std::uint32_t) override {
    if (point == StepPoint::final_norm) final_norm.assign(rows.begin(), rows.end());
  }
  std::vector<float> final_norm;
};

TEST_P(ASession, MultipliesTheFinalNormWithTheOutputHead) {
  for (const auto& [tied, precision, error] :
       {std::tuple(false, Precision::exact, 1e-5), std::tuple(true, Precision::exact, 1e-5),
        std::tuple(true, Precision::fast, 1e-3)}) {
    config.tied_embeddings = tied;
    const ModelOnDisk own_model(config);
    const auto engine = own_model.open({.precision = precision});
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

TEST_P(ASession, BehavesLikeNewAfterClear) {
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

TEST_P(ASession, ReportsEachStepAndKeepsACheckpointOnTheWay) {
  const auto engine = model.open({.threads = 1, .step_rows = 8});
  const Tokens tokens = random_tokens(*engine, 30);
  Session session = new_session(*engine), plain = new_session(*engine);
  Logits expected(config.vocabulary), logits(config.vocabulary);
  ASSERT_TRUE(plain.extend(tokens, expected));
  std::vector<std::uint32_t> positions;
  std::uint64_t rows = 0;
  const auto progress = [&](const StepStatistics& step) {
    positions.push_back(session.position());
    rows += step.rows;
    return Status();
  };
  const Result<StepStatistics> all =
      session.extend(tokens, logits, {.step = {}, .checkpoint_at = 19}, progress);
  ASSERT_TRUE(all);
  EXPECT_EQ(positions, (std::vector{8u, 16u, 19u, 27u, 30u}));
  EXPECT_EQ(rows, 30u);
  EXPECT_EQ(all->rows, 30u);
  EXPECT_TRUE(same_bits(logits, expected));
  EXPECT_EQ(session.checkpoint_count(), 1u);
  ASSERT_TRUE(session.restore_to(19));
  ASSERT_TRUE(session.extend(std::span(tokens).subspan(19), logits));
  EXPECT_TRUE(same_bits(logits, expected));
  // Neither where extend() begins nor where it ends: such a checkpoint is for the caller to take.
  for (const std::uint32_t outside : {0u, 30u, 38u, 39u}) {
    ASSERT_TRUE(session.extend(std::span(tokens).first(8), {}, {.step = {}, .checkpoint_at = outside},
                               [](const StepStatistics&) { return Status(); }));
    EXPECT_EQ(session.checkpoint_count(), 1u) << outside;
    ASSERT_TRUE(session.rewind(30));
  }
}

TEST_P(ASession, StoppedByItsCallerStandsAfterThatStepAndGivesTheRestBack) {
  const auto engine = model.open({.threads = 1, .context = 600, .step_rows = 8});
  const StateShape shape = state_shape_of(config);
  const Tokens tokens = random_tokens(*engine, 520);
  Session session = new_session(*engine);
  const Result<StepStatistics> stopped =
      session.extend(tokens, {}, {.step = {}, .checkpoint_at = 8}, [&](const StepStatistics&) -> Status {
        // The recurrent states of this position, and of the next two steps or the checkpoint.
        EXPECT_EQ(engine->state_pool().used_bytes(),
                  shape.session_bytes(520) + 2 * shape.recurrent_block_bytes());
        if (session.position() < 16) return {};
        return Error(ErrorCode::cancelled, "enough");
      });
  EXPECT_TRUE(fails_with(stopped, ErrorCode::cancelled, "enough"));
  EXPECT_EQ(session.position(), 16u);
  EXPECT_EQ(engine->state_pool().used_bytes(), shape.session_bytes(16) + shape.recurrent_block_bytes());
  Logits logits(config.vocabulary);
  ASSERT_TRUE(session.extend(std::span(tokens).subspan(16), logits));
  EXPECT_TRUE(same_bits(logits, fresh_logits(*engine, tokens)));
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

TEST_P(ASession, MovesWithItsWholeState) {
  const auto engine = model.open(), other_engine = model.open();
  const Tokens tokens = random_tokens(*engine, 300), next = random_tokens(*engine, 4, 2);
  Session first = new_session(*engine);
  ASSERT_TRUE(first.extend(tokens));
  Session undisturbed = new_session(*engine);
  ASSERT_TRUE(undisturbed.extend(tokens));
  const Logits expected = logits_after(undisturbed, next);

  Session moved(std::move(first));
  Session assigned = new_session(*other_engine);  // may hold the last reference to that engine
  ASSERT_TRUE(assigned.extend(next));
  assigned = std::move(moved);
  EXPECT_EQ(&assigned.engine(), engine.get());
  EXPECT_EQ(assigned.position(), 300u);
  EXPECT_TRUE(same_bits(logits_after(assigned, next), expected));
}

TEST_P(ASession, StepsOnAnyThreadConcurrentlyWithOthers) {
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

TEST_P(ASession, ForEveryRowFitsIntoAStepAtTheEndOfTheContext) {
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

TEST_P(FewerExperts, ComputeAnotherModel) {
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
  // Weights are normalized over the chosen experts alone: 1, times 2.5 in the deepseek family.
  const bool is_softmax = config.family == Family::qwen3_5_moe;
  for (const ChoiceObserver::Layer& layer : of_fewer.layers) {
    EXPECT_EQ(layer.experts_per_token, 1u);
    EXPECT_EQ(layer.experts.size(), 50u);
    EXPECT_THAT(layer.weights, Each(FloatNear(is_softmax ? 1.0f : 2.5f, 1e-6f)));
  }
}

TEST_P(FewerExperts, HaveWeightsThatSumToOne) {
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

TEST_P(FewerExperts, AreNotFewerAtTheModelsOwnCount) {
  const std::uint32_t own = std::get<MoeConfig>(config.layers.back().mlp).experts_per_token;
  const auto whole = model.open(), same = model.open({.threads = 1, .experts_per_token = own});
  const Tokens tokens = random_tokens(*whole, 20);
  Session first = new_session(*whole), second = new_session(*same);
  EXPECT_TRUE(same_bits(all_logits(second, tokens), all_logits(first, tokens)));
}

// A batch whose rows choose different experts visits more experts at once than any single row.
TEST(ManyExperts, FitIntoTheWorkspaceHoweverTheyAreChosen) {
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

}  // namespace
}  // namespace moeflux
