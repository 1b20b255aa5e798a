#include "measure/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/session.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

TEST(LogLikelihood, IsTheLogarithmOfTheSoftmax) {
  const std::vector<float> logits{1.0f, 2.0f, 0.5f};
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(0.5);
  for (std::uint32_t i = 0; i < 3; ++i)
    EXPECT_NEAR(log_likelihood(logits, TokenId(i)), std::log(std::exp(double{logits[i]}) / sum), 1e-12);
  const std::vector<float> far{1000.0f, -1000.0f};
  EXPECT_EQ(log_likelihood(far, TokenId(0)), 0.0);
  EXPECT_EQ(log_likelihood(far, TokenId(1)), -2000.0);
}

struct Perplexity : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem files;
  std::shared_ptr<Engine> engine;
  std::vector<TokenId> text;

  void SetUp() override {
    const Manifest manifest = tiny_manifest(tiny_deepseek_config());
    const auto path = write_packed_model(temporary, manifest);
    write_random_weights(temporary, manifest);
    std::mt19937 random(5);
    EngineOptions options;
    options.threads = 1;
    options.context = 32;
    options.step_rows = 5;
    Result<std::shared_ptr<Engine>> opened = Engine::open(files, *PackedModel::open(files, path), options);
    ASSERT_TRUE(opened) << opened.error().message();
    engine = *opened;
    for (int i = 0; i < 50; ++i)
      text.emplace_back(static_cast<std::uint32_t>(random() % engine->config().vocabulary));
  }

  // The costs of tokens first..end of a window, with one step per token.
  std::vector<double> costs_of(std::span<const TokenId> window, std::size_t first) {
    std::vector<double> costs;
    Session session = *engine->new_session();
    std::vector<float> logits(engine->config().vocabulary);
    for (std::size_t i = 0; i + 1 < window.size(); ++i) {
      EXPECT_TRUE(session.extend(window.subspan(i, 1), logits));
      if (i + 1 >= first) costs.push_back(-log_likelihood(logits, window[i + 1]));
    }
    return costs;
  }

  PerplexityResult measured(std::span<const TokenId> tokens, std::uint32_t window) {
    const Result<PerplexityResult> result =
        measure_perplexity(*engine, tokens, {window, nullptr}, [](std::uint64_t, std::uint64_t) {});
    EXPECT_TRUE(result) << result.error().message();
    return result ? *result : PerplexityResult();
  }
};

TEST_F(Perplexity, OfAShortTextScoresEveryTokenButTheFirst) {
  const auto tokens = std::span(text).first(20);
  const std::vector<double> costs = costs_of(tokens, 1);
  ASSERT_EQ(costs.size(), 19u);
  double mean = 0, variance = 0;
  for (const double cost : costs) mean += cost / 19;
  for (const double cost : costs) variance += (cost - mean) * (cost - mean) / 18;
  const PerplexityResult result = measured(tokens, 32);
  EXPECT_NEAR(result.perplexity, std::exp(mean), 1e-9 * std::exp(mean));
  EXPECT_NEAR(result.standard_error, std::exp(mean) * std::sqrt(variance / 19), 1e-6);
  EXPECT_EQ(result.scored_tokens, 19u);
  EXPECT_EQ(result.windows, 1u);
}

TEST_F(Perplexity, OfALongTextScoresTheSecondHalfOfEveryWindow) {
  double sum = 0;
  for (int window = 0; window < 3; ++window)
    for (const double cost : costs_of(std::span(text).subspan(static_cast<std::size_t>(window) * 16, 16), 9))
      sum += cost;
  const PerplexityResult result = measured(text, 16);
  EXPECT_EQ(result.windows, 3u);
  EXPECT_EQ(result.scored_tokens, 3u * 7);
  EXPECT_NEAR(result.perplexity, std::exp(sum / 21), 1e-9 * result.perplexity);
}

TEST_F(Perplexity, TellsHowFarItIs) {
  std::vector<std::uint64_t> done;
  ASSERT_TRUE(measure_perplexity(*engine, text, {10, nullptr}, [&](std::uint64_t windows, std::uint64_t all) {
    EXPECT_EQ(all, 5u);
    done.push_back(windows);
  }));
  EXPECT_EQ(done, (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
}

TEST_F(Perplexity, OfATokenThatIsNoneIsRefusedWhereverItStands) {
  for (const std::size_t at : {std::size_t{0}, std::size_t{15}, text.size() - 1}) {
    std::vector<TokenId> wrong = text;
    wrong[at] = TokenId(engine->config().vocabulary);
    const auto result =
        measure_perplexity(*engine, wrong, {16, nullptr}, [](std::uint64_t, std::uint64_t) {});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::token_out_of_range);
  }
}

TEST_F(Perplexity, CanBeCancelled) {
  const std::atomic<bool> cancel = true;
  const auto result = measure_perplexity(*engine, text, {16, &cancel}, [](std::uint64_t, std::uint64_t) {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::cancelled);
}

TEST_F(Perplexity, OfNothingOrOfAWindowThatDoesNotFitIsRefused) {
  const auto refused = [&](std::span<const TokenId> tokens, std::uint32_t window) {
    const auto result =
        measure_perplexity(*engine, tokens, {window, nullptr}, [](std::uint64_t, std::uint64_t) {});
    return !result && result.error().code() == ErrorCode::invalid_argument;
  };
  EXPECT_TRUE(refused(std::span(text).first(1), 16));
  EXPECT_TRUE(refused(text, 2));
  EXPECT_TRUE(refused(text, 33));
  EXPECT_FALSE(refused(text, 3));
}

}  // namespace
}  // namespace moeflux
