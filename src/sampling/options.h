#pragma once
// The options of sampling, and their valid ranges.
//
// They apply in the order of Hugging Face and vLLM, for which the generation_config.json of a model is tuned:
// penalties, bias, constraint, temperature, top_k, top_p, min_p. (By default llama.cpp applies the
// temperature last, which keeps different tokens for the same options.) docs/sampling.md has the formulas.
// Plain values.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace moeflux {

inline constexpr std::uint32_t kMaxTopLogprobs = 20;
inline constexpr std::int32_t kMaxRepeatLastN = 1 << 20;
inline constexpr double kGreedyBelow = 1e-6;  // a lower temperature means greedy

struct LogitBias {
  TokenId token;
  float bias;  // -infinity bans the token
};

struct SamplingOptions {
  double temperature = 1.0;    // below kGreedyBelow: the best token, the lowest id of a tie
  std::uint32_t top_k = 0;     // keep the k best tokens; 0: all
  double top_p = 1.0;          // keep the fewest best tokens that reach this probability; 1: all
  double min_p = 0.0;          // keep tokens this probable relative to the best; 0: all
  std::uint32_t min_keep = 1;  // top_p and min_p keep at least this many

  // The window of the penalties: the last `repeat_last_n` tokens of prompt and generation; -1: all, 0: none.
  std::int32_t repeat_last_n = 64;
  double repetition_penalty = 1.0;  // prompt and generation: logit > 0 ? logit / p : logit * p
  double presence_penalty = 0.0;    // subtracted once from generated tokens
  double frequency_penalty = 0.0;   // subtracted per occurrence in the generation

  std::vector<LogitBias> logit_bias;  // added; entries of the same token add up
  std::optional<std::uint64_t> seed;  // absent: from the operating system; see Sampler::seed()
  bool logprobs = false;              // report the chosen token's logprob: one pass over all logits
  std::uint32_t top_logprobs = 0;     // alternatives to report with it, at most kMaxTopLogprobs
};

// How messages name the options: as fields, or by names that the user of the caller knows, such as "--top-p".
struct SamplingOptionNames {
  std::string_view temperature = "temperature", top_p = "top_p", min_p = "min_p", min_keep = "min_keep",
                   repeat_last_n = "repeat_last_n", repetition_penalty = "repetition_penalty",
                   presence_penalty = "presence_penalty", frequency_penalty = "frequency_penalty",
                   logit_bias = "logit_bias", top_logprobs = "top_logprobs";
};

// Fails with `invalid_argument` for an option out of range: "top_p: expected 0 to 1, found 1.5"; with
// `token_out_of_range` for a bias of a token outside the vocabulary; with `unsupported` for a vocabulary of a
// size that cannot be sampled from.
Status check(const SamplingOptions& options, std::size_t vocabulary_size,
             const SamplingOptionNames& names = {});

}  // namespace moeflux
