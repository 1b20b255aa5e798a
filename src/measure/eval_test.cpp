#include "measure/eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "engine/session.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

using test::States;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kPrompt = 11, kGreedy = 4;

// Records everything from a step that a golden contains.
class Recorder final : public StepObserver {
 public:
  Recorder(Golden& golden, std::size_t layers) : golden_(golden), layers_(layers) {
    golden_.routers.resize(layers);
  }

  void saw(StepPoint point, LayerId layer, std::span<const float> rows, std::uint32_t) override {
    const bool is_last = layer.index() + 1 == layers_;
    if (point == StepPoint::embedding || point == (is_last ? StepPoint::final_norm : StepPoint::residual))
      golden_.hidden_states.insert(golden_.hidden_states.end(), rows.begin(), rows.end());
  }
  void chose(LayerId layer, std::span<const std::uint32_t> experts, std::span<const float> weights,
             std::uint32_t experts_per_token) override {
    golden_.routers[layer.index()] = {
        experts_per_token, {weights.begin(), weights.end()}, {experts.begin(), experts.end()}};
  }
  bool replace_residual(LayerId, std::span<float>, std::uint32_t) override { return false; }

 private:
  Golden& golden_;
  const std::size_t layers_;
};

std::uint32_t largest_of(std::span<const float> row) {
  return static_cast<std::uint32_t>(std::ranges::max_element(row) - row.begin());
}

// A model of two layers, the first of them dense, and a golden that the same engine computed.
struct Evaluation : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem files;
  std::shared_ptr<Engine> engine;
  std::size_t vocabulary = 0;
  Golden golden;

  void SetUp() override {
    const Manifest manifest = tiny_manifest(tiny_deepseek_config());
    const auto path = write_packed_model(temporary, manifest);
    write_random_weights(temporary, manifest);
    EngineOptions options;
    options.threads = 2;
    options.context = 32;
    auto opened = Engine::open(files, *PackedModel::open(files, path), options);
    ASSERT_TRUE(opened) << opened.error().message();
    engine = *std::move(opened);
    vocabulary = engine->config().vocabulary;
    record();
  }

  void record() {
    for (std::uint32_t i = 0; i < kPrompt; ++i) golden.input.push_back(TokenId((i * 37 + 5) % 96));
    for (std::uint32_t i = 0; i < kPrompt; ++i) golden.logit_positions.push_back(i);
    golden.logits.resize(kPrompt * vocabulary);
    auto session = engine->new_session();
    ASSERT_TRUE(session);
    Recorder recorder(golden, engine->config().layers.size());
    run(*session, golden.input, golden.logits, &recorder);
    std::uint32_t next = largest_of(std::span(golden.logits).last(vocabulary));
    for (std::size_t i = 0; i < kGreedy; ++i) {
      golden.greedy.push_back(TokenId(next));
      golden.greedy_logits.resize(golden.greedy.size() * vocabulary);
      const auto row = std::span(golden.greedy_logits).last(vocabulary);
      run(*session, std::span(golden.greedy).last(1), row, nullptr);
      next = largest_of(row);
    }
  }

  void run(Session& session, std::span<const TokenId> tokens, std::span<float> logits,
           StepObserver* observer) {
    const Segment segment{&session, tokens, WantedLogits::all, logits};
    StepOptions options;
    options.observer = observer;
    const auto done = engine->step({&segment, 1}, options);
    ASSERT_TRUE(done) << done.error().message();
  }

  EvalResult evaluated(const EvalOptions& options = {}) {
    const auto result = evaluate(*engine, golden, options);
    EXPECT_TRUE(result) << result.error().message();
    return result ? *result : EvalResult{};
  }

  Digest digest_of_golden() const {
    DigestStream digest;
    digest.add(std::as_bytes(std::span(golden.logits)));
    digest.add(std::as_bytes(std::span(golden.greedy_logits)));
    return digest.value();
  }
};

using LayerEvaluation = Evaluation;

TEST_F(Evaluation, OfWhatTheEngineItselfComputesFindsNoError) {
  const EvalResult result = evaluated();
  EXPECT_EQ(result.max_logit_error, 0);
  EXPECT_EQ(result.mean_logit_error, 0);
  EXPECT_EQ(result.top1_agreement, 1);
  EXPECT_EQ(result.greedy_match, true);
  EXPECT_EQ(result.positions, kPrompt);
  EXPECT_TRUE(result.layers.empty());
  EXPECT_TRUE(result.is_finite());
}

TEST_F(Evaluation, HashesEveryRowOfThePromptAndThenEveryGreedyStep) {
  EXPECT_EQ(evaluated().logits_xxh3, digest_of_golden());
}

TEST_F(Evaluation, ComputesTheSameLogitsHoweverTheWorkIsCut) {
  const Digest digest = evaluated().logits_xxh3;
  for (const EvalOptions& options :
       {EvalOptions{.chunk = 1}, EvalOptions{.chunk = 4}, EvalOptions{.chunk = 10},
        EvalOptions{.chunk = 1000}, EvalOptions{.batch = 2}, EvalOptions{.batch = 13},
        EvalOptions{.chunk = 3, .batch = 5, .layers = true}}) {
    const EvalResult result = evaluated(options);
    EXPECT_EQ(result.logits_xxh3, digest) << options.chunk << " " << options.batch;
    EXPECT_EQ(result.max_logit_error, 0);
    EXPECT_EQ(result.greedy_match, true);
  }
}

TEST_F(Evaluation, NoticesOneWrongLogitAnywhere) {
  for (const std::size_t at : {std::size_t{0}, golden.logits.size() / 2, golden.logits.size() - 1}) {
    const float right = golden.logits[at];
    golden.logits[at] += 0.25f;
    const double error = double{golden.logits[at]} - double{right};
    for (const std::uint32_t chunk : {0u, 4u}) {
      const EvalResult result = evaluated({.chunk = chunk});
      EXPECT_EQ(result.max_logit_error, error);
      EXPECT_DOUBLE_EQ(result.mean_logit_error,
                       error / static_cast<double>((kPrompt + kGreedy) * vocabulary));
    }
    golden.logits[at] = right;
  }
  golden.greedy_logits.back() -= 0.5f;
  EXPECT_NEAR(evaluated().max_logit_error, 0.5, 1e-6);
}

TEST_F(Evaluation, ComparesTheRowsThatTheGoldenHas) {
  Golden some = golden;
  some.logits.clear();
  some.logit_positions = {0, 4, 5, kPrompt - 1};
  for (const std::uint32_t position : some.logit_positions) {
    const auto row = std::span(golden.logits).subspan(position * vocabulary, vocabulary);
    some.logits.insert(some.logits.end(), row.begin(), row.end());
  }
  const Digest digest = evaluated().logits_xxh3;
  golden = some;
  for (const std::uint32_t chunk : {0u, 1u, 5u}) {
    const EvalResult result = evaluated({.chunk = chunk});
    EXPECT_EQ(result.max_logit_error, 0);
    EXPECT_EQ(result.positions, 4u);
    EXPECT_EQ(result.logits_xxh3, digest);
  }
  golden.logits[2 * vocabulary] += 1;
  EXPECT_NEAR(evaluated().max_logit_error, 1, 1e-6);
}

TEST_F(Evaluation, CountsRowsWhoseLargestLogitIsAnother) {
  const auto row = std::span(golden.logits).subspan(2 * vocabulary, vocabulary);
  row[(largest_of(row) + 1) % vocabulary] = 1000;
  EXPECT_DOUBLE_EQ(evaluated().top1_agreement, 1 - 1.0 / (kPrompt + kGreedy));
}

TEST_F(Evaluation, SaysWhetherTheModelWouldHaveChosenTheGreedyIds) {
  golden.greedy.back() = TokenId(golden.greedy.back().index() ^ 1);
  EXPECT_EQ(evaluated().greedy_match, false);
  golden.greedy.back() = TokenId(golden.greedy.back().index() ^ 1);
  golden.greedy.front() = TokenId(golden.greedy.front().index() ^ 1);
  EXPECT_EQ(evaluated().greedy_match, false);
}

TEST_F(Evaluation, RunsGreedyIdsWithoutLogitsAndPromptsWithoutGreedyIds) {
  golden.greedy_logits.clear();
  EXPECT_EQ(evaluated().greedy_match, true);
  EXPECT_EQ(evaluated().max_logit_error, 0);
  golden.greedy.clear();
  EXPECT_EQ(evaluated().greedy_match, std::nullopt);
  EXPECT_EQ(evaluated().logits_xxh3, digest_of_golden());
}

TEST_F(Evaluation, IsNotFiniteWhenTheGoldenHasSomethingThatIsNoNumber) {
  for (const float wrong : {kNaN, std::numeric_limits<float>::infinity()}) {
    const float right = std::exchange(golden.logits[vocabulary + 1], wrong);
    const EvalResult result = evaluated();
    EXPECT_FALSE(std::isfinite(result.max_logit_error));
    EXPECT_FALSE(std::isfinite(result.mean_logit_error));
    EXPECT_FALSE(result.is_finite());
    EXPECT_LT(result.top1_agreement, 1);
    golden.logits[vocabulary + 1] = right;
  }
  golden.greedy_logits[0] = kNaN;
  EXPECT_FALSE(evaluated().is_finite());
}

TEST_F(Evaluation, GivesTheErrorsOfTheEngine) {
  golden.input[3] = TokenId(96);
  EXPECT_EQ(evaluate(*engine, golden).error().code(), ErrorCode::token_out_of_range);
  golden.input[3] = TokenId(1);
  EXPECT_EQ(evaluate(*engine, golden, {.batch = 512 / kPrompt + 1}).error().code(),
            ErrorCode::invalid_argument);
}

TEST_F(Evaluation, NeedsRoomForPromptAndGreedyIds) {
  golden.greedy_logits.clear();
  golden.greedy.resize(32 - kPrompt, TokenId(1));
  EXPECT_TRUE(evaluate(*engine, golden));
  golden.greedy.push_back(TokenId(1));
  EXPECT_EQ(evaluate(*engine, golden).error().code(), ErrorCode::context_full);
}

TEST_F(LayerEvaluation, OfWhatTheEngineItselfComputesFindsNoError) {
  for (const EvalOptions& options : {EvalOptions{.layers = true}, EvalOptions{.chunk = 4, .layers = true},
                                     EvalOptions{.chunk = 4, .batch = 3, .layers = true}}) {
    const EvalResult result = evaluated(options);
    ASSERT_EQ(result.layers.size(), 2u);
    EXPECT_EQ(result.layers[0].layer, LayerId(0));
    EXPECT_EQ(result.layers[0].max_hidden_error, 0);
    EXPECT_EQ(result.layers[0].router_ids_equal, std::nullopt);
    EXPECT_EQ(result.layers[0].max_router_weight_error, std::nullopt);
    EXPECT_EQ(result.layers[1].layer, LayerId(1));
    EXPECT_EQ(result.layers[1].max_hidden_error, 0);
    EXPECT_EQ(result.layers[1].router_ids_equal, true);
    EXPECT_EQ(result.layers[1].max_router_weight_error, 0);
  }
}

TEST_F(LayerEvaluation, RunsEachLayerOnTheGoldensInput) {
  const std::size_t dim = engine->config().dim;
  golden.hidden_states[kPrompt * dim + 7] += 0.5f;  // after layer 0, of position 0
  const EvalResult result = evaluated({.layers = true});
  EXPECT_NEAR(result.layers[0].max_hidden_error, 0.5, 1e-3);
  EXPECT_GT(result.layers[1].max_hidden_error, 0) << "the change is the input of layer 1";
  EXPECT_EQ(result.max_logit_error, 0) << "logits are those of an ordinary pass";
}

TEST_F(LayerEvaluation, ComparesTheLastLayerAfterTheFinalNorm) {
  golden.hidden_states.back() += 0.5f;
  const EvalResult result = evaluated({.chunk = 3, .layers = true});
  EXPECT_EQ(result.layers[0].max_hidden_error, 0);
  EXPECT_NEAR(result.layers[1].max_hidden_error, 0.5, 1e-3);
}

TEST_F(LayerEvaluation, MatchesWeightsByExpertWhateverTheirOrder) {
  GoldenRouter& router = golden.routers[1];
  ASSERT_EQ(router.experts_per_token, 2u);
  for (std::size_t i = 0; i < router.experts.size(); i += 2) {
    std::swap(router.experts[i], router.experts[i + 1]);
    std::swap(router.weights[i], router.weights[i + 1]);
  }
  EvalResult result = evaluated({.layers = true});
  EXPECT_EQ(result.layers[1].router_ids_equal, true);
  EXPECT_EQ(result.layers[1].max_router_weight_error, 0);

  router.weights[5] += 0.125f;
  result = evaluated({.layers = true});
  EXPECT_EQ(result.layers[1].router_ids_equal, true);
  EXPECT_NEAR(*result.layers[1].max_router_weight_error, 0.125, 1e-6);
}

TEST_F(LayerEvaluation, NoticesAnotherExpertAndCountsItsWholeWeight) {
  GoldenRouter& router = golden.routers[1];
  std::uint32_t other = 0;
  while (other == router.experts[4] || other == router.experts[5]) ++other;
  const float weight = router.weights[4];
  router.experts[4] = other;
  const EvalResult result = evaluated({.layers = true});
  EXPECT_EQ(result.layers[1].router_ids_equal, false);
  EXPECT_EQ(*result.layers[1].max_router_weight_error, double{weight});
}

TEST_F(LayerEvaluation, NoticesAnotherNumberOfExperts) {
  GoldenRouter& router = golden.routers[1];
  router.experts_per_token = 1;
  router.experts.resize(kPrompt);
  router.weights.resize(kPrompt);
  EXPECT_EQ(evaluated({.layers = true}).layers[1].router_ids_equal, false);
}

TEST_F(LayerEvaluation, GoesWithoutRoutersAndNotWithoutHiddenStates) {
  golden.routers.clear();
  const EvalResult result = evaluated({.layers = true});
  EXPECT_EQ(result.layers[1].max_hidden_error, 0);
  EXPECT_EQ(result.layers[1].router_ids_equal, std::nullopt);
  golden.hidden_states.clear();
  const auto refused = evaluate(*engine, golden, {.layers = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
  EXPECT_THAT(refused, States("hidden states"));
}

TEST_F(LayerEvaluation, IsNotFiniteWhenTheGoldenHasSomethingThatIsNoNumber) {
  golden.routers[1].weights[3] = kNaN;
  EvalResult result = evaluated({.layers = true});
  EXPECT_FALSE(std::isfinite(*result.layers[1].max_router_weight_error));
  EXPECT_FALSE(result.is_finite());
  golden.routers[1].weights[3] = 0;
  golden.hidden_states.back() = kNaN;
  result = evaluated({.layers = true});
  EXPECT_FALSE(std::isfinite(result.layers[1].max_hidden_error));
  EXPECT_FALSE(result.is_finite());
}

using EvaluationContract = Evaluation;

TEST_F(EvaluationContract, WantsAGoldenOfThisModel) {
  Golden other = golden;
  other.logits.pop_back();
  EXPECT_CONTRACT((void)evaluate(*engine, other), "there is a row of logits for each of their positions");
  other = golden;
  other.logit_positions[1] = 0;
  EXPECT_CONTRACT((void)evaluate(*engine, other), "the positions of logits are ascending");
}

}  // namespace
}  // namespace moeflux
