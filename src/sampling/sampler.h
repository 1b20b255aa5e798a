#pragma once
// A Sampler chooses the next token from the logits.
//
//   SamplingWorkspace workspace(vocabulary_size);                  // one per thread
//   MF_TRY(Sampler sampler, Sampler::create(options, workspace));  // one per generation
//   for (token of the prompt) sampler.accept_prompt(token);
//   MF_TRY(const Choice choice, sampler.sample(logits, &constraint));
//   sampler.accept(choice.token);  constraint.accept(choice.token);
//
// The same logits, options, seed and history give the same token on every machine and in every batch: a draw
// depends on the seed and the number of tokens passed to accept(), not on how often or in which order
// sample() was called. docs/sampling.md is the specification.
//
// A Sampler refers to its workspace, which outlives it. Samplers that share a workspace take turns on one
// thread. Only error messages allocate after construction.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "sampling/constraint.h"
#include "sampling/options.h"
#include "sampling/ranking.h"
#include "sampling/token_history.h"

namespace moeflux {

// Scratch memory for one choice at a time: 22 bytes per token, 5.5 MB for 248,320 tokens.
class SamplingWorkspace {
 public:
  // Requires: 1 <= vocabulary_size <= kMaxSampledVocabulary.
  explicit SamplingWorkspace(std::size_t vocabulary_size);

  std::size_t vocabulary_size() const { return logits_.size(); }

 private:
  friend class Sampler;
  Ranking ranking_;
  std::vector<float> logits_;        // after penalties, bias and constraint
  std::vector<std::uint64_t> mask_;  // one bit per token
  std::vector<float> highest_of_block_, blocks_in_order_;
};

struct TokenLogprob {
  TokenId token;
  float logprob;
};

struct Choice {
  TokenId token;
  // In the model's own distribution: of the logits before penalties, bias, constraint and temperature. NaN
  // unless the options ask for logprobs.
  float logprob;
  // The most probable tokens of that distribution, best first; valid until the next sample().
  std::span<const TokenLogprob> top;
  // The number of tokens that the draw chose from.
  std::uint64_t candidates;
};

class Sampler {
 public:
  // Fails as check(options, workspace.vocabulary_size()) does.
  static Result<Sampler> create(SamplingOptions options, SamplingWorkspace& workspace);

  // Adds a token of the prompt, for the repetition penalty.
  void accept_prompt(TokenId token);
  // Adds a generated token, whether sample() chose it or not. It counts for all penalties and advances the
  // random numbers.
  void accept(TokenId token);

  // Chooses the next token. `constraint` may be null. Requires: one logit per token of the vocabulary. Fails
  // with `corrupt_data` if a logit is NaN or +infinity, and with `invalid_argument` if no token is left to
  // choose.
  Result<Choice> sample(std::span<const float> logits, Constraint* constraint = nullptr);

  // The seed of the options, or the one from the operating system.
  std::uint64_t seed() const { return seed_; }

  // The work of the last sample().
  const SamplingWork& work() const { return workspace_->ranking_.work; }

 private:
  struct Drawn {
    TokenId token;
    std::uint64_t candidates;
  };

  Sampler(SamplingOptions options, SamplingWorkspace& workspace);

  bool adjusts() const { return history_.in_use() || !options_.logit_bias.empty(); }
  void adjust();
  void mask(Constraint& constraint);
  Result<Drawn> best(std::span<const float> logits, float highest, Constraint* constraint);
  Drawn draw(std::span<const float> logits);
  float needed_for_top_k();
  double log_of_sum(std::span<const float> logits, float highest);
  Ranking::Prefix kept();
  struct Extremes {
    float highest;
    bool has_nan;
  };
  Extremes extremes_of(std::span<const float> logits);
  void find_top(std::span<const float> logits);

  SamplingOptions options_;
  SamplingWorkspace* workspace_;
  std::uint64_t seed_;
  std::uint64_t generated_ = 0;
  TokenHistory history_;
  std::vector<TokenLogprob> top_;
};

}  // namespace moeflux
