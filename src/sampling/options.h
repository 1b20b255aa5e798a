#pragma once
// How a token is chosen from logits: what a user may ask for, and what of it makes sense.
//
// The order of the chain is that of Hugging Face and vLLM, because models bring a generation_config.json
// that was tuned for it: penalties, bias, constraint, temperature, top_k, top_p, min_p. (llama.cpp's
// default applies the temperature last, which keeps other tokens for the same numbers.) docs/sampling.md
// has the formulas. Plain values.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace moeflux {

inline constexpr std::uint32_t kMaxTopLogprobs = 20;
inline constexpr std::int32_t kMaxRepeatLastN = 1 << 20;
inline constexpr double kGreedyBelow = 1e-6;  // temperatures below this choose the best token

struct LogitBias {
  TokenId token;
  float bias;  // -infinity bans the token
};

struct SamplingOptions {
  double temperature = 1.0;    // 0 (or below kGreedyBelow): the best token, the lowest id of equals
  std::uint32_t top_k = 0;     // only the k best; 0: all
  double top_p = 1.0;          // only the best that together reach this probability; 1: all
  double min_p = 0.0;          // only those at least this probable, relative to the best; 0: all
  std::uint32_t min_keep = 1;  // top_p and min_p leave at least so many

  // Over the last `repeat_last_n` tokens of prompt and generation; -1: all of them, 0: none.
  std::int32_t repeat_last_n = 64;
  double repetition_penalty = 1.0;  // of tokens of prompt and generation: logit > 0 ? logit / p : logit * p
  double presence_penalty = 0.0;    // subtracted once from tokens that were generated
  double frequency_penalty = 0.0;   // subtracted for every time that a token was generated

  std::vector<LogitBias> logit_bias;  // added; several for one token add up
  std::optional<std::uint64_t> seed;  // absent: one of the operating system's, see Sampler::seed()
  bool logprobs = false;              // report that of the chosen token: a pass over all logits
  std::uint32_t top_logprobs = 0;     // how many alternatives to report with it, at most kMaxTopLogprobs
};

// What is wrong with the options, by name, range and value: "top_p must be from 0 to 1, found 1.5".
// `invalid_argument`; a bias for a token that is not there is `token_out_of_range`.
Status check(const SamplingOptions& options, std::size_t vocabulary_size);

}  // namespace moeflux
