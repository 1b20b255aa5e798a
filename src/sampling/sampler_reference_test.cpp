// The sampler against a plain reference: probabilities by std::exp, a full sort, running sums in double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "sampling/philox.h"
#include "sampling/sampler.h"

namespace moeflux {
namespace {

struct Candidate {
  double logit;
  std::uint32_t id;
  double probability;
};

// Weights are rounded to 2^-42 of the best one, so a sum of a thousand is off by up to 2^-33, and the double
// sums here by less. A comparison that is closer than this may go either way.
constexpr double kClose = 1e-9;

struct Expected {
  std::vector<Candidate> kept;
  bool close = false;  // some comparison was closer than kClose
};

void normalize(std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += candidate.probability;
  for (Candidate& candidate : candidates) candidate.probability /= sum;
}

std::vector<Candidate> ranked(const SamplingOptions& options, const std::vector<float>& logits,
                              const std::vector<std::uint32_t>& prompt,
                              const std::vector<std::uint32_t>& generated) {
  std::vector<Candidate> candidates;
  for (std::uint32_t id = 0; id < logits.size(); ++id) {
    double logit = static_cast<double>(logits[id]);
    const auto in_prompt = std::count(prompt.begin(), prompt.end(), id);
    const auto in_text = std::count(generated.begin(), generated.end(), id);
    if (in_prompt + in_text > 0)
      logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
    logit -= static_cast<double>(in_text) * options.frequency_penalty;
    logit -= in_text > 0 ? options.presence_penalty : 0;
    float rounded = static_cast<float>(logit);
    for (const LogitBias& bias : options.logit_bias)
      if (bias.token.index() == id) rounded += bias.bias;
    if (rounded > -std::numeric_limits<float>::infinity())
      candidates.push_back({static_cast<double>(rounded), id, 0});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  for (Candidate& candidate : candidates)
    candidate.probability = std::exp((candidate.logit - candidates[0].logit) / options.temperature);
  normalize(candidates);
  return candidates;
}

Expected cut(const SamplingOptions& options, std::vector<Candidate> candidates) {
  Expected expected;
  if (options.top_k > 0 && options.top_k < candidates.size())
    candidates.erase(candidates.begin() + options.top_k, candidates.end());
  normalize(candidates);
  const std::size_t at_least = std::min<std::size_t>(options.min_keep, candidates.size());
  std::size_t count = candidates.size();
  if (options.top_p < 1) {
    double before = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      expected.close = expected.close || (i > 0 && std::fabs(before - options.top_p) < kClose);
      if (before >= options.top_p) {
        count = std::min(count, std::max<std::size_t>(i, 1));
        break;
      }
      before += candidates[i].probability;
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const double relative = candidates[i].probability / candidates[0].probability;
    // At min_p = 1 the comparison of equal logits is exact.
    const bool tied = candidates[i].logit == candidates[0].logit;
    expected.close =
        expected.close || (!tied && std::fabs(relative - options.min_p) < kClose * options.min_p);
    if (relative < options.min_p) count = i;
  }
  candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(std::max(count, at_least)),
                   candidates.end());
  expected.kept = std::move(candidates);
  return expected;
}

// The number of kept tokens with a nonzero weight.
std::size_t weighty(const std::vector<Candidate>& kept, double& closest) {
  std::size_t count = 0;
  for (const Candidate& candidate : kept) {
    const double weight = candidate.probability / kept[0].probability * 0x1p42;
    closest = std::min(closest, std::fabs(weight - 0.5));
    if (weight > 0.5) ++count;
  }
  return count;
}

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}
  bool chance(double p) { return real(0, 1) < p; }
  double real(double from, double to) { return std::uniform_real_distribution<double>(from, to)(random_); }
  std::uint32_t below(std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(random_);
  }

  std::vector<float> logits() {
    std::vector<float> logits(chance(0.1) ? 1 + below(3) : 1 + below(chance(0.1) ? 3000 : 300));
    const double deviation = std::exp(real(-3, 2.5));
    std::normal_distribution<double> normal(0, deviation);
    const bool coarse = chance(0.3);  // many ties
    for (float& logit : logits) {
      const double value = normal(random_);
      logit = static_cast<float>(coarse ? std::round(value * 2) / 2 : value);
      if (chance(0.02)) logit = -std::numeric_limits<float>::infinity();
    }
    logits[0] = 0.5f;
    return logits;
  }

  SamplingOptions options(std::uint32_t vocabulary) {
    SamplingOptions options;
    options.seed = below(1000000);
    options.temperature = chance(0.3) ? 1.0 : chance(0.1) ? 1e-6 : chance(0.1) ? 100 : real(0.1, 2);
    if (chance(0.4)) options.top_k = 1 + below(chance(0.5) ? 10 : vocabulary + 10);
    if (chance(0.5)) options.top_p = chance(0.1) ? 0 : real(0, 1);
    if (chance(0.4)) options.min_p = chance(0.1) ? 1 : real(0, 0.5);
    if (chance(0.2)) options.min_keep = 1 + below(10);
    if (chance(0.3)) options.repetition_penalty = real(0.5, 2);
    if (chance(0.3)) options.presence_penalty = real(-2, 2);
    if (chance(0.3)) options.frequency_penalty = real(-2, 2);
    while (chance(0.2))
      options.logit_bias.push_back({TokenId{below(vocabulary)}, static_cast<float>(real(-5, 5))});
    options.repeat_last_n = chance(0.5) ? -1 : static_cast<std::int32_t>(below(10));
    return options;
  }

 private:
  std::mt19937_64 random_;
};

TEST(SamplingChain, KeepsAndChoosesTheTokensOfAFullSort) {
  Generator generator(99);
  int compared = 0, cut_short = 0;
  for (int round = 0; round < 6000; ++round) {
    SCOPED_TRACE(round);
    const std::vector<float> logits = generator.logits();
    const auto vocabulary = static_cast<std::uint32_t>(logits.size());
    const SamplingOptions options = generator.options(vocabulary);
    SamplingWorkspace workspace(vocabulary);
    Sampler sampler = *Sampler::create(options, workspace);
    std::vector<std::uint32_t> prompt, generated;
    while (generator.chance(0.7))
      sampler.accept_prompt(TokenId{prompt.emplace_back(generator.below(vocabulary))});
    while (generator.chance(0.8))
      sampler.accept(TokenId{generated.emplace_back(generator.below(vocabulary))});

    const std::uint64_t index = generated.size();
    // The tokens of the prompt leave the window first.
    while (options.repeat_last_n >= 0 &&
           prompt.size() + generated.size() > static_cast<std::size_t>(options.repeat_last_n)) {
      std::vector<std::uint32_t>& oldest = prompt.empty() ? generated : prompt;
      oldest.erase(oldest.begin());
    }

    const auto choice = sampler.sample(logits);
    ASSERT_TRUE(choice) << choice.error().message();
    const Expected expected = cut(options, ranked(options, logits, prompt, generated));
    double closest = 1;
    std::vector<Candidate> kept = expected.kept;
    const std::size_t count = weighty(kept, closest);
    if (expected.close || closest < 1e-3) continue;
    ++compared;
    cut_short += count < vocabulary;
    ASSERT_EQ(choice->candidates, count);

    normalize(kept);
    const double place = static_cast<double>(random_bits(*options.seed, index)) * 0x1p-64;
    double before = 0;
    std::size_t chosen = 0;
    while (chosen + 1 < count && before + kept[chosen].probability <= place)
      before += kept[chosen++].probability;
    if (choice->token.index() != kept[chosen].id) {
      const double after = before + kept[chosen].probability;
      EXPECT_LT(std::min(std::fabs(place - before), std::fabs(place - after)), kClose);
    }
  }
  EXPECT_GT(compared, 5800);
  EXPECT_GT(cut_short, 3000);
}

TEST(SamplingChain, AppliesTheTemperatureBeforeTopP) {
  // At temperature 1 the first token has 0.67; at 0.5 it has 0.85. Only the second order keeps it alone.
  SamplingOptions options;
  options.seed = 1;
  options.temperature = 0.5;
  options.top_p = 0.8;
  SamplingWorkspace workspace(3);
  Sampler sampler = *Sampler::create(options, workspace);
  EXPECT_EQ(sampler.sample(std::vector<float>{2.0f, 1.0f, 0.0f})->candidates, 1);
}

std::uint64_t candidates_of(const SamplingOptions& options, const std::vector<float>& logits) {
  SamplingWorkspace workspace(logits.size());
  return Sampler::create(options, workspace)->sample(logits)->candidates;
}

// A token is kept if those before it have less than top_p: exactly top_p is not less.
TEST(SamplingChain, ExcludesTheTokenBeforeWhichExactlyTopPLies) {
  SamplingOptions options;
  options.seed = 1;
  options.top_p = 0.5;
  EXPECT_EQ(candidates_of(options, {3.0f, 3.0f}), 1u);
  options.top_p = std::nextafter(0.5, 1.0);
  EXPECT_EQ(candidates_of(options, {3.0f, 3.0f}), 2u);
  options.top_p = 0.75;
  EXPECT_EQ(candidates_of(options, std::vector<float>(400, -1.0f)), 300u);
}

// Tokens of weights 2^42, 1, 1, 1 and 0. A min_p below 2^-43 excludes none that has a weight.
TEST(SamplingChain, AppliesAVerySmallMinPToTheExponents) {
  const std::vector<float> logits{0.0f, -29.2f, -29.5f, -29.8f, -29.9f};
  SamplingOptions options;
  options.seed = 1;
  EXPECT_EQ(candidates_of(options, logits), 4u);
  for (const auto& [min_p, candidates] :
       std::vector<std::pair<double, std::uint64_t>>{{std::exp(-29.0), 1},
                                                     {std::exp(-29.3), 2},
                                                     {std::exp(-29.6), 3},
                                                     {0x1p-43, 4},
                                                     {1e-13, 4},
                                                     {1e-300, 4},
                                                     {std::numeric_limits<double>::denorm_min(), 4}}) {
    options.min_p = min_p;
    EXPECT_EQ(candidates_of(options, logits), candidates) << min_p;
  }
}

TEST(SamplingChain, BreaksTiesAtACutByTheLowerId) {
  SamplingOptions options;
  options.top_k = 3;
  options.temperature = 2;
  SamplingWorkspace workspace(500);
  const std::vector<float> equal(500, -7.0f);
  std::vector<int> seen(500);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    options.seed = seed;
    Sampler sampler = *Sampler::create(options, workspace);
    const auto choice = sampler.sample(equal);
    ASSERT_EQ(choice->candidates, 3);
    ++seen[choice->token.index()];
  }
  EXPECT_GT(seen[0], 30);
  EXPECT_GT(seen[1], 30);
  EXPECT_GT(seen[2], 30);
  EXPECT_EQ(seen[0] + seen[1] + seen[2], 200);
  options.top_k = 0;
  options.min_p = 1;
  Sampler all = *Sampler::create(options, workspace);
  EXPECT_EQ(all.sample(equal)->candidates, 500) << "all are as probable as the best";
  options.top_p = 0;
  Sampler one = *Sampler::create(options, workspace);
  EXPECT_EQ(one.sample(equal)->candidates, 1);
  EXPECT_EQ(one.sample(equal)->token, TokenId{0});
}

}  // namespace
}  // namespace moeflux
