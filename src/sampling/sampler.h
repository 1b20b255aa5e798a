#pragma once
// Logits in, a token out.
//
//   SamplingWorkspace workspace(vocabulary_size);              // one a thread
//   MF_TRY(Sampler sampler, Sampler::create(options, workspace));  // one a generation
//   for (token of the prompt) sampler.accept_prompt(token);
//   MF_TRY(const Choice choice, sampler.sample(logits, &constraint));
//   sampler.accept(choice.token);  constraint.accept(choice.token);
//
// The same logits, options, seed and history give the same token on every machine, in whatever batch: the
// draw depends on the seed and on how many tokens were accepted, not on how often or in which order
// sample() was called. docs/sampling.md is the specification.
//
// A Sampler refers to its workspace, which outlives it; samplers that share one take turns on one thread.
// Nothing allocates after construction, but the messages of errors.

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

// Room for one choice at a time: 22 bytes a token, 6 MB for 248,320.
class SamplingWorkspace {
 public:
  // Requires 1 <= vocabulary_size <= kMaxSampledVocabulary.
  explicit SamplingWorkspace(std::size_t vocabulary_size);

  std::size_t vocabulary_size() const { return logits_.size(); }

 private:
  friend class Sampler;
  Ranking ranking_;
  std::vector<float> logits_;        // after penalties, bias and constraint
  std::vector<std::uint64_t> mask_;  // a bit for each token
  std::vector<float> highest_of_block_, blocks_in_order_;
};

struct TokenLogprob {
  TokenId token;
  float logprob;
};

struct Choice {
  TokenId token;
  // Of the model's own distribution: the logits as they came, before penalties, bias, constraint and
  // temperature. NaN unless the options ask for logprobs.
  float logprob;
  // The most probable tokens of that distribution, best first; valid until the next sample().
  std::span<const TokenLogprob> top;
  // How many tokens the draw was among.
  std::uint64_t candidates;
};

class Sampler {
 public:
  // The error of check(options, workspace.vocabulary_size()).
  static Result<Sampler> create(SamplingOptions options, SamplingWorkspace& workspace);

  // A token of the prompt, for the repetition penalty.
  void accept_prompt(TokenId token);
  // A token that was generated, chosen by sample() or not: it counts for all penalties, and the next draw is
  // another one.
  void accept(TokenId token);

  // The next token. `constraint` may be null. Requires a logit for each token of the vocabulary. A logit
  // that is NaN or +infinity is `corrupt_data`; when no token is left to choose, `invalid_argument`.
  Result<Choice> sample(std::span<const float> logits, Constraint* constraint = nullptr);

  // What the draws depend on: the seed of the options, or the one that was taken instead.
  std::uint64_t seed() const { return seed_; }

  // What the last sample() did.
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
  Ranking::Beginning kept();
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
