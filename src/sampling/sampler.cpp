#include "sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <random>
#include <utility>

#include "base/check.h"
#include "sampling/philox.h"
#include "sampling/weight.h"

namespace moeflux {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// In lanes, so that compilers vectorize it; a maximum is independent of the order. A comparison with NaN is
// false, so the result is never NaN.
float highest_of(std::span<const float> logits, bool& has_nan) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> highest;
  std::array<std::uint32_t, kLanes> unequal{};
  highest.fill(-kInfinity);
  const std::size_t whole = logits.size() - logits.size() % kLanes;
  const auto add = [&](float logit, std::size_t lane) {
    highest[lane] = logit > highest[lane] ? logit : highest[lane];
    unequal[lane] |= logit != logit ? 1u : 0u;
  };
  for (std::size_t i = 0; i < whole; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(logits[i + lane], lane);
  for (std::size_t i = whole; i < logits.size(); ++i) add(logits[i], i - whole);
  for (const std::uint32_t lane : unequal) has_nan = has_nan || lane != 0;
  return *std::max_element(highest.begin(), highest.end());
}

Error not_finite(std::span<const float> logits) {
  const auto bad =
      std::find_if(logits.begin(), logits.end(), [](float x) { return x != x || x == kInfinity; });
  return {ErrorCode::corrupt_data,
          fmt::format("sampling: token {}: expected a logit that is finite or -inf, found {}",
                      bad - logits.begin(), *bad)};
}

Error nothing_left(bool constrained) {
  return {
      ErrorCode::invalid_argument,
      fmt::format("sampling: no token is left to choose: every token has logit -inf, is banned by a bias{}",
                  constrained ? ", or is forbidden by the constraint" : "")};
}

}  // namespace

SamplingWorkspace::SamplingWorkspace(std::size_t vocabulary_size)
    : ranking_(vocabulary_size),
      logits_(vocabulary_size),
      mask_((vocabulary_size + 63) / 64),
      highest_of_block_(ranking_.blocks()),
      blocks_in_order_(ranking_.blocks()) {
  MF_REQUIRE(vocabulary_size > 0, "a vocabulary has a token");
}

Result<Sampler> Sampler::create(SamplingOptions options, SamplingWorkspace& workspace) {
  MF_TRY_STATUS(check(options, workspace.vocabulary_size()));
  return Sampler(std::move(options), workspace);
}

Sampler::Sampler(SamplingOptions options, SamplingWorkspace& workspace)
    : options_(std::move(options)), workspace_(&workspace), history_(options_, workspace.vocabulary_size()) {
  if (options_.seed) {
    seed_ = *options_.seed;
  } else {
    std::random_device entropy;
    seed_ = (std::uint64_t{entropy()} << 32) | entropy();
  }
  top_.reserve(options_.top_logprobs);
}

void Sampler::accept_prompt(TokenId token) {
  MF_REQUIRE(token.index() < workspace_->vocabulary_size(), "the token is one of the vocabulary");
  history_.add(token, TokenHistory::Origin::prompt);
}

void Sampler::accept(TokenId token) {
  MF_REQUIRE(token.index() < workspace_->vocabulary_size(), "the token is one of the vocabulary");
  history_.add(token, TokenHistory::Origin::generation);
  ++generated_;
}

// Also writes the highest logit of each block to the workspace.
Sampler::Extremes Sampler::extremes_of(std::span<const float> logits) {
  Extremes extremes{-kInfinity, false};
  workspace_->ranking_.work.logits_read += logits.size();
  for (std::size_t block = 0; block < workspace_->highest_of_block_.size(); ++block) {
    const std::size_t begin = block * Ranking::kBlockTokens;
    const std::size_t size = std::min(Ranking::kBlockTokens, logits.size() - begin);
    const float highest = highest_of(logits.subspan(begin, size), extremes.has_nan);
    workspace_->highest_of_block_[block] = highest;
    extremes.highest = std::max(extremes.highest, highest);
  }
  return extremes;
}

void Sampler::adjust() {
  const std::span<float> logits = workspace_->logits_;
  history_.penalize(logits);
  // No sum leaves the range of a float: a logit is finite or -inf, and a bias (at most 1e6) is far less than
  // half the distance between the largest floats.
  for (const auto& [token, bias] : options_.logit_bias) logits[token.index()] += bias;
}

void Sampler::mask(Constraint& constraint) {
  constraint.write_mask(workspace_->mask_);
  const std::span<float> logits = workspace_->logits_;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if ((workspace_->mask_[i / 64] >> (i % 64) & 1) == 0) logits[i] = -kInfinity;
}

// Checks the best token first: it is usually allowed, and one check is cheaper than a mask of all tokens.
Result<Sampler::Drawn> Sampler::best(std::span<const float> logits, float highest, Constraint* constraint) {
  const auto first = [](std::span<const float> all, float value) {
    return TokenId{static_cast<std::uint32_t>(std::find(all.begin(), all.end(), value) - all.begin())};
  };
  const TokenId token = first(logits, highest);
  if (constraint == nullptr || constraint->allows(token)) return Drawn{token, 1};
  const std::span<float> masked = workspace_->logits_;
  if (logits.data() != masked.data()) std::copy(logits.begin(), logits.end(), masked.begin());
  mask(*constraint);
  highest = extremes_of(masked).highest;
  if (highest == -kInfinity) return nothing_left(true);
  return Drawn{first(masked, highest), 1};
}

// The shortest of the prefixes that top_k, top_p and min_p keep. top_p is a fraction of what top_k kept;
// min_p is relative to the best token, which every prefix contains.
Ranking::Prefix Sampler::kept() {
  Ranking& ranking = workspace_->ranking_;
  Ranking::Prefix result = ranking.all();
  if (options_.top_k > 0 && options_.top_k < result.tokens) result = ranking.first(options_.top_k);
  const Ranking::Prefix before = result;
  if (options_.top_p < 1) {
    const double limit = options_.top_p * static_cast<double>(result.weight);
    result = ranking.within(limit);
    if (result.tokens == 0) result = ranking.first(1);
  }
  if (options_.min_p * kFullWeight >= 0.5) {  // a smaller min_p keeps every token that has a weight
    const Ranking::Prefix part = ranking.at_least(natural_log(options_.min_p));
    if (part.tokens < result.tokens) result = part;
  }
  if (result.tokens < options_.min_keep && result.tokens < before.tokens)
    result = before.tokens <= options_.min_keep ? before : ranking.first(options_.min_keep);
  return result;
}

// A lower bound on the top_k best logits: the highest logit of the k-th best block, which k blocks reach.
// Blocks below it are skipped.
float Sampler::needed_for_top_k() {
  std::vector<float>& order = workspace_->blocks_in_order_;
  if (options_.top_k == 0 || options_.top_k > order.size()) return -kInfinity;
  order = workspace_->highest_of_block_;
  const auto place = order.begin() + static_cast<std::ptrdiff_t>(options_.top_k - 1);
  std::nth_element(order.begin(), place, order.end(), std::greater<>());
  return *place;
}

Sampler::Drawn Sampler::draw(std::span<const float> logits) {
  workspace_->ranking_.build(logits, workspace_->highest_of_block_, 1.0 / options_.temperature,
                             needed_for_top_k());
  const Ranking::Prefix candidates = kept();
  const std::uint64_t place = scaled_to(random_bits(seed_, generated_), candidates.weight);
  return Drawn{workspace_->ranking_.at(place), candidates.tokens};
}

// ln(sum of e^(logit - highest)), at least 0, from the sum of the weights, which is at least kFullWeight.
double Sampler::log_of_sum(std::span<const float> logits, float highest) {
  workspace_->ranking_.work.logits_read += logits.size();
  std::uint64_t sum = 0;
  for (const float logit : logits) sum += weight_of(exponent_of(logit, highest, 1.0));
  return natural_log(static_cast<double>(sum) / kFullWeight);
}

void Sampler::find_top(std::span<const float> logits) {
  top_.clear();
  if (options_.top_logprobs == 0) return;
  workspace_->ranking_.work.logits_read += logits.size();
  // Ids are ascending, so a token goes behind its equals.
  const auto better = [](float logit, const TokenLogprob& other) { return logit > other.logprob; };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (top_.size() == options_.top_logprobs) {
      if (!better(logits[i], top_.back())) continue;
      top_.pop_back();
    }
    const auto place = std::upper_bound(top_.begin(), top_.end(), logits[i], better);
    top_.insert(place, {TokenId{static_cast<std::uint32_t>(i)}, logits[i]});
  }
}

Result<Choice> Sampler::sample(std::span<const float> logits, Constraint* constraint) {
  MF_REQUIRE(logits.size() == workspace_->vocabulary_size(), "there is a logit for each token");
  workspace_->ranking_.work = {};
  const Extremes raw = extremes_of(logits);
  if (raw.has_nan || raw.highest == kInfinity) return not_finite(logits);
  if (raw.highest == -kInfinity) return nothing_left(constraint != nullptr);

  const bool greedy = options_.temperature < kGreedyBelow;
  const bool masks = constraint != nullptr && !greedy;
  std::span<const float> adjusted = logits;
  float highest = raw.highest;
  if (adjusts() || masks) {
    std::copy(logits.begin(), logits.end(), workspace_->logits_.begin());
    adjust();
    if (masks) mask(*constraint);
    adjusted = workspace_->logits_;
    highest = extremes_of(adjusted).highest;
    if (highest == -kInfinity) return nothing_left(constraint != nullptr);
  }
  MF_TRY(const Drawn drawn, greedy ? best(adjusted, highest, constraint) : Result<Drawn>(draw(adjusted)));

  top_.clear();
  Choice choice{drawn.token, std::numeric_limits<float>::quiet_NaN(), {}, drawn.candidates};
  if (!options_.logprobs && options_.top_logprobs == 0) return choice;
  const double log_sum = log_of_sum(logits, raw.highest);
  const auto logprob = [&](float logit) {
    const double exact = exponent_of(logit, raw.highest, 1.0) - log_sum;
    return exact < -double{std::numeric_limits<float>::max()} ? -kInfinity : static_cast<float>(exact);
  };
  find_top(logits);
  for (TokenLogprob& entry : top_) entry.logprob = logprob(entry.logprob);
  choice.logprob = logprob(logits[drawn.token.index()]);
  choice.top = top_;
  return choice;
}

}  // namespace moeflux
