#include "sampling/sampler.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/testing/allocation_counter.h"
#include "base/testing/expect_contract.h"
#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A constraint that allows a fixed set.
class Only final : public Constraint {
 public:
  explicit Only(std::vector<std::uint32_t> tokens) : tokens_(std::move(tokens)) {}
  bool allows(TokenId token) const override {
    return std::find(tokens_.begin(), tokens_.end(), token.index()) != tokens_.end();
  }
  void write_mask(std::span<std::uint64_t> mask) override {
    ++masks;
    std::fill(mask.begin(), mask.end(), 0);
    for (const std::uint32_t token : tokens_) mask[token / 64] |= std::uint64_t{1} << (token % 64);
  }
  void accept(TokenId) override {}
  bool can_end() const override { return false; }

  int masks = 0;

 private:
  std::vector<std::uint32_t> tokens_;
};

struct Sampling {
  Sampling(SamplingOptions options, std::size_t vocabulary_size)
      : workspace(vocabulary_size), sampler(*Sampler::create(std::move(options), workspace)) {}

  std::uint32_t token(const std::vector<float>& logits, Constraint* constraint = nullptr) {
    const auto choice = sampler.sample(logits, constraint);
    EXPECT_TRUE(choice) << (choice ? "" : choice.error().message());
    return choice ? choice->token.index() : ~0u;
  }

  SamplingWorkspace workspace;
  Sampler sampler;
};

SamplingOptions greedy() {
  SamplingOptions options;
  options.temperature = 0;
  return options;
}

SamplingOptions seeded(std::uint64_t seed) {
  SamplingOptions options;
  options.seed = seed;
  return options;
}

std::vector<float> normal_logits(std::size_t size, float deviation, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

TEST(GreedySampling, TakesTheBestTokenAndTheLowestIdOfATie) {
  Sampling sampling(greedy(), 37);
  std::vector<float> logits(37, -1.0f);
  EXPECT_EQ(sampling.token(logits), 0);
  logits[36] = 2;
  EXPECT_EQ(sampling.token(logits), 36);
  logits[19] = 2;
  EXPECT_EQ(sampling.token(logits), 19);
  std::fill(logits.begin(), logits.end(), -0.0f);
  logits[5] = 0.0f;
  EXPECT_EQ(sampling.token(logits), 0) << "the zeros are equal";
  std::fill(logits.begin(), logits.end(), -kInfinity);
  logits[7] = -3e38f;
  EXPECT_EQ(sampling.token(logits), 7);
}

TEST(GreedySampling, ComputesAMaskOnlyIfTheBestTokenIsForbidden) {
  Sampling sampling(greedy(), 100);
  std::vector<float> logits(100);
  for (std::size_t i = 0; i < 100; ++i) logits[i] = static_cast<float>(i);
  Only allowed({99, 3});
  EXPECT_EQ(sampling.token(logits, &allowed), 99);
  EXPECT_EQ(allowed.masks, 0);
  Only others({3, 64, 5});
  EXPECT_EQ(sampling.token(logits, &others), 64);
  EXPECT_EQ(others.masks, 1);
}

TEST(Sampling, RejectsNanAndInfiniteLogits) {
  for (const SamplingOptions& options : {greedy(), seeded(1)}) {
    Sampling sampling(options, 40);
    for (const std::size_t at : {0u, 16u, 33u, 39u}) {
      for (const float bad : {std::nanf(""), kInfinity}) {
        std::vector<float> logits(40, 1.0f);
        logits[at] = bad;
        const auto choice = sampling.sampler.sample(logits);
        ASSERT_FALSE(choice);
        EXPECT_EQ(choice.error().code(), ErrorCode::corrupt_data);
        EXPECT_THAT(choice, States("token", at, "logit", "finite or -inf", fmt::format("{}", bad)));
      }
    }
  }
}

TEST(Sampling, FailsIfNoTokenIsLeft) {
  for (SamplingOptions options : {greedy(), seeded(1)}) {
    const std::vector<float> none(8, -kInfinity), equal(8, 1.0f);
    Sampling plain(options, 8);
    const auto empty = plain.sampler.sample(none);
    ASSERT_FALSE(empty);
    EXPECT_EQ(empty.error().code(), ErrorCode::invalid_argument);
    Only nothing({});
    const auto forbidden = plain.sampler.sample(equal, &nothing);
    ASSERT_FALSE(forbidden);
    EXPECT_THAT(forbidden, States("forbidden", "constraint"));
    for (std::uint32_t i = 0; i < 8; ++i) options.logit_bias.push_back({TokenId{i}, -kInfinity});
    Sampling banned(options, 8);
    EXPECT_FALSE(banned.sampler.sample(equal));
  }
}

TEST(Sampling, ReportsLogprobsOfTheUnadjustedLogits) {
  SamplingOptions options = seeded(3);
  options.temperature = 0.3;
  options.logit_bias = {{TokenId{2}, 50.0f}, {TokenId{0}, -kInfinity}};
  options.top_logprobs = 3;
  Sampling sampling(options, 5);
  const std::vector<float> logits{2, 1, 0, 1, -kInfinity};
  const auto choice = sampling.sampler.sample(logits);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->token, TokenId{2});
  const double sum = std::exp(2) + 2 * std::exp(1) + 1;
  EXPECT_NEAR(choice->logprob, 0 - std::log(sum), 1e-6);
  ASSERT_EQ(choice->top.size(), 3);
  EXPECT_EQ(choice->top[0].token, TokenId{0});
  EXPECT_EQ(choice->top[1].token, TokenId{1});
  EXPECT_EQ(choice->top[2].token, TokenId{3});
  EXPECT_NEAR(choice->top[0].logprob, 2 - std::log(sum), 1e-6);
  EXPECT_NEAR(choice->top[1].logprob, 1 - std::log(sum), 1e-6);
  EXPECT_EQ(choice->top[1].logprob, choice->top[2].logprob);
}

TEST(Sampling, ReportsTheSameLogprobWithAndWithoutADraw) {
  const auto logits = normal_logits(1000, 3, 5);
  SamplingOptions options = greedy();
  options.logprobs = true;
  Sampling best(options, 1000);
  const auto choice = best.sampler.sample(logits);
  EXPECT_LT(choice->logprob, 0);
  options = seeded(1);
  options.logprobs = true;
  options.top_k = 1;
  Sampling drawn(options, 1000);
  EXPECT_EQ(drawn.sampler.sample(logits)->logprob, choice->logprob);
}

TEST(Sampling, ReportsNoLogprobByDefault) {
  Sampling sampling(seeded(1), 3);
  const auto choice = sampling.sampler.sample(std::vector<float>{1, 2, 3});
  EXPECT_TRUE(std::isnan(choice->logprob));
  EXPECT_TRUE(choice->top.empty());
}

TEST(Sampling, ReportsFewerAlternativesForASmallVocabulary) {
  SamplingOptions options = greedy();
  options.top_logprobs = 20;
  Sampling sampling(options, 2);
  EXPECT_EQ(sampling.sampler.sample(std::vector<float>{1, 2})->top.size(), 2);
}

TEST(Seeds, GiveTheSameTokensHoweverOftenSampleIsCalled) {
  const auto logits = normal_logits(500, 1, 7);
  const auto text = [&](Sampling& sampling, int extra) {
    std::vector<std::uint32_t> tokens;
    for (int i = 0; i < 50; ++i) {
      for (int again = 0; again < extra; ++again) sampling.token(logits);
      tokens.push_back(sampling.token(logits));
      sampling.sampler.accept(TokenId{tokens.back()});
    }
    return tokens;
  };
  Sampling a(seeded(42), 500), b(seeded(42), 500), other(seeded(43), 500);
  const auto tokens = text(a, 0);
  EXPECT_EQ(tokens, text(b, 2));
  EXPECT_NE(tokens, text(other, 0));
  EXPECT_GT(std::set<std::uint32_t>(tokens.begin(), tokens.end()).size(), 20);
}

TEST(Seeds, ComeFromTheSystemIfAbsentAndCanBeReused) {
  const auto logits = normal_logits(100, 1, 8);
  Sampling a({}, 100), b({}, 100);
  EXPECT_NE(a.sampler.seed(), b.sampler.seed());
  Sampling again(seeded(a.sampler.seed()), 100);
  for (int i = 0; i < 20; ++i) {
    const auto token = a.token(logits);
    EXPECT_EQ(again.token(logits), token);
    a.sampler.accept(TokenId{token});
    again.sampler.accept(TokenId{token});
  }
}

TEST(Seeds, AreIndependentInASharedWorkspace) {
  const auto logits = normal_logits(300, 1, 9);
  SamplingWorkspace workspace(300);
  Sampler a = *Sampler::create(seeded(1), workspace), b = *Sampler::create(seeded(2), workspace);
  Sampling alone_a(seeded(1), 300), alone_b(seeded(2), 300);
  for (int i = 0; i < 20; ++i) {
    const TokenId from_a = a.sample(logits)->token, from_b = b.sample(logits)->token;
    EXPECT_EQ(from_a.index(), alone_a.token(logits));
    EXPECT_EQ(from_b.index(), alone_b.token(logits));
    for (Sampler* sampler : {&a, &alone_a.sampler}) sampler->accept(from_a);
    for (Sampler* sampler : {&b, &alone_b.sampler}) sampler->accept(from_b);
  }
}

// Every build must choose these tokens. An independent implementation of docs/sampling.md, in Python with
// exactly rounded weights, chose the same.
TEST(Seeds, GiveTheSameTokensEverywhere) {
  SamplingOptions options = seeded(20240229);
  options.temperature = 0.8;
  options.top_p = 0.95;
  Sampling sampling(options, 1000);
  std::vector<float> logits(1000);
  for (std::uint32_t i = 0; i < 1000; ++i) logits[i] = static_cast<float>((i * 7919u) % 1009u) * 0.01f;
  std::vector<std::uint32_t> tokens;
  for (int i = 0; i < 8; ++i) {
    tokens.push_back(sampling.token(logits));
    sampling.sampler.accept(TokenId{tokens.back()});
  }
  EXPECT_EQ(tokens, (std::vector<std::uint32_t>{489, 442, 950, 983, 772, 7, 752, 409}));
}

TEST(Draws, FollowTheDistribution) {
  // 12 classes: chi-square with 11 degrees of freedom exceeds 31.26 with probability 0.001; the seed is
  // fixed.
  const std::vector<float> logits{0, 0.5, 1, 1.5, 2, -1, -2, 0, 0.25, 1, 1, -0.5};
  Sampling sampling(seeded(12345), logits.size());
  std::vector<int> counts(logits.size());
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const auto token = sampling.token(logits);
    ++counts[token];
    sampling.sampler.accept(TokenId{token});
  }
  double sum = 0, chi_square = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double expected = kDraws * std::exp(static_cast<double>(logits[i])) / sum;
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi_square, 31.26);
  EXPECT_GT(chi_square, 1.0) << "too even to be random";
}

TEST(Penalties, RepetitionAppliesToPromptAndGeneration) {
  SamplingOptions options = greedy();
  options.repetition_penalty = 2;
  Sampling sampling(options, 4);
  const std::vector<float> logits{3, 2.5, 2, -1};
  EXPECT_EQ(sampling.token(logits), 0);
  sampling.sampler.accept_prompt(TokenId{0});  // 3 -> 1.5
  EXPECT_EQ(sampling.token(logits), 1);
  sampling.sampler.accept(TokenId{1});  // 2.5 -> 1.25
  EXPECT_EQ(sampling.token(logits), 2);
  sampling.sampler.accept(TokenId{2});
  EXPECT_EQ(sampling.token(logits), 0);
  const std::vector<float> negative{-1, -1.5, -1.9f, -1.95f};
  EXPECT_EQ(sampling.token(negative), 3) << "a negative logit is multiplied";
}

TEST(Penalties, PresenceAndFrequencyApplyToTheGenerationOnly) {
  SamplingOptions options = greedy();
  options.presence_penalty = 1;
  options.frequency_penalty = 0.5;
  Sampling sampling(options, 3);
  const std::vector<float> logits{3, 1.75, 0.9f};
  for (int i = 0; i < 5; ++i) sampling.sampler.accept_prompt(TokenId{0});
  EXPECT_EQ(sampling.token(logits), 0);
  sampling.sampler.accept(TokenId{0});  // 3 - 1.5
  EXPECT_EQ(sampling.token(logits), 1);
  sampling.sampler.accept(TokenId{1});  // 1.75 - 1.5
  EXPECT_EQ(sampling.token(logits), 0);
  sampling.sampler.accept(TokenId{0});  // 3 - 2
  EXPECT_EQ(sampling.token(logits), 0);
  sampling.sampler.accept(TokenId{0});  // 3 - 2.5
  EXPECT_EQ(sampling.token(logits), 2);
}

TEST(Penalties, ForgetTokensOutsideTheWindow) {
  SamplingOptions options = greedy();
  options.repetition_penalty = 2;
  options.repeat_last_n = 2;
  Sampling sampling(options, 4);
  const std::vector<float> logits{3, 2.5, 2, -1};
  sampling.sampler.accept(TokenId{0});
  sampling.sampler.accept(TokenId{0});
  sampling.sampler.accept(TokenId{3});
  EXPECT_EQ(sampling.token(logits), 1) << "0 is in the window once";
  sampling.sampler.accept(TokenId{3});
  EXPECT_EQ(sampling.token(logits), 0);
  options.repeat_last_n = 0;
  Sampling off(options, 4);
  off.sampler.accept(TokenId{0});
  EXPECT_EQ(off.token(logits), 0);
  options.repeat_last_n = -1;
  Sampling all(options, 4);
  all.sampler.accept(TokenId{0});
  for (int i = 0; i < 1000; ++i) all.sampler.accept(TokenId{3});
  EXPECT_EQ(all.token(logits), 1);
}

TEST(Penalties, NeverMakeALogitInfinite) {
  SamplingOptions options = greedy();
  options.repetition_penalty = 100;
  Sampling sampling(options, 2);
  sampling.sampler.accept(TokenId{0});
  sampling.sampler.accept(TokenId{1});
  EXPECT_EQ(sampling.token({-3e38f, -kInfinity}), 0);
  options.repetition_penalty = 1e-300;
  Sampling raised(options, 2);
  raised.sampler.accept(TokenId{1});
  EXPECT_EQ(raised.token({3e38f, 1e30f}), 1);
}

TEST(Bias, AddsUpAndBans) {
  SamplingOptions options = greedy();
  options.logit_bias = {{TokenId{1}, 0.75f}, {TokenId{1}, 0.75f}, {TokenId{2}, -kInfinity}};
  Sampling sampling(options, 3);
  EXPECT_EQ(sampling.token({1, 0, 9}), 1);
  EXPECT_EQ(sampling.token({2, 0, 9}), 0);
}

TEST(Bias, KeepsALogitFiniteAtTheEndsOfTheRange) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  SamplingOptions options = greedy();
  for (int i = 0; i < 100; ++i) options.logit_bias.push_back({TokenId{0}, -1e6f});
  Sampling lowered(options, 2);
  EXPECT_EQ(lowered.token({-kLargest, -kInfinity}), 0) << "as low as can be, but not banned";
  for (LogitBias& entry : options.logit_bias) entry.bias = 1e6f;
  Sampling raised(options, 2);
  EXPECT_EQ(raised.token({kLargest, 1.0f}), 0);
  EXPECT_EQ(raised.token({-kInfinity, -kLargest}), 1) << "a bias does not bring -inf back";
}

TEST(Sampler, RejectsBadOptionsAndChecksItsContracts) {
  SamplingWorkspace workspace(10);
  SamplingOptions options;
  options.top_p = 2;
  const auto refused = Sampler::create(options, workspace);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused, States("top_p", 2));
  Sampling sampling({}, 10);
  EXPECT_CONTRACT(sampling.sampler.accept(TokenId{10}), "the token is one of the vocabulary");
  EXPECT_CONTRACT((void)sampling.sampler.sample(std::vector<float>(9)), "there is a logit for each token");
}

TEST(Sampler, AllocatesNothingAfterConstruction) {
  SamplingOptions options = seeded(1);
  options.temperature = 0.7;
  options.top_k = 50;
  options.top_p = 0.9;
  options.min_p = 0.01;
  options.repetition_penalty = 1.1;
  options.presence_penalty = 0.5;
  options.repeat_last_n = -1;
  options.logit_bias = {{TokenId{3}, 1.0f}};
  options.top_logprobs = 20;
  const auto logits = normal_logits(20000, 1, 11);
  Sampling sampling(options, logits.size());
  std::vector<std::uint32_t> even;
  for (std::uint32_t i = 0; i < 20000; i += 2) even.push_back(i);
  Only constraint(even);
  const AllocationCounter counter;
  for (int i = 0; i < 100; ++i) {
    const auto choice = sampling.sampler.sample(logits, i % 2 == 0 ? &constraint : nullptr);
    sampling.sampler.accept(choice->token);
  }
  EXPECT_EQ(counter.allocations(), 0);
}

// The cost of a choice among 248,320 tokens, in passes over all of them and in sorted tokens.
TEST(SamplingWork, IsAFewPassesAndLittleSorting) {
  constexpr std::size_t kTokens = 248320;
  const auto flat = normal_logits(kTokens, 0.5f, 21);
  auto peaked = normal_logits(kTokens, 2, 22);
  for (std::size_t i = 0; i < 30; ++i) peaked[i * 8000] = 20.0f - static_cast<float>(i) * 0.5f;
  const std::vector<float> equal(kTokens, 1.0f);
  SamplingWorkspace workspace(kTokens);
  const auto work = [&](const SamplingOptions& options, const std::vector<float>& logits) {
    Sampler sampler = *Sampler::create(options, workspace);
    const auto choice = sampler.sample(logits);
    EXPECT_TRUE(choice);
    return sampler.work();
  };
  EXPECT_EQ(work(greedy(), flat).logits_read, kTokens);
  SamplingOptions options = seeded(5);
  options.temperature = 0.7;
  options.top_p = 0.95;
  for (const auto& logits : {flat, peaked}) {
    EXPECT_EQ(work(options, logits).logits_read, 2 * kTokens);
    EXPECT_LT(work(options, logits).tokens_selected, 10000);
    EXPECT_LE(work(options, logits).tokens_sorted, 2 * 64);
  }
  options.logprobs = true;
  EXPECT_EQ(work(options, flat).logits_read, 3 * kTokens);
  options.logprobs = false;
  options.repetition_penalty = 1.1;
  EXPECT_EQ(work(options, flat).logits_read, 3 * kTokens);
  options.repetition_penalty = 1;
  options.top_k = 20;
  for (const auto& logits : {flat, peaked}) {
    EXPECT_LE(work(options, logits).logits_read, kTokens + 20 * 128);
    EXPECT_LE(work(options, logits).blocks_searched, 3 * 20);
    EXPECT_LT(work(options, logits).tokens_selected, 100);
  }
  options.top_k = 0;
  EXPECT_EQ(work(options, equal).tokens_selected, kTokens);
  EXPECT_LE(work(options, equal).tokens_sorted, 2 * 64);
}

}  // namespace
}  // namespace moeflux
