#pragma once
// How surprised a model is by a text: exp of the mean negative log-likelihood of its tokens.
//
// The text is cut into windows of `window` tokens, each run from an empty session, and only the tokens of the second
// half of a window are scored: they have more than half a window before them. This is llama.cpp's convention, but
// that windows after the first do not begin with a token that begins a text. A text of a single window or less is scored from its second token on;
// a rest that is shorter than a window is left out. Logits are reduced row by row in double and none are kept.
// One thread at a time.

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"

namespace moeflux {

struct PerplexityOptions {
  std::uint32_t window = 512;  // at least 3, and no more than the engine's context
  const std::atomic<bool>* cancel = nullptr;
};

struct PerplexityResult {
  double perplexity = 0;
  double standard_error = 0;  // of the perplexity: tokens taken as independent
  std::uint64_t scored_tokens = 0;
  std::uint64_t windows = 0;
  std::vector<TokenId> likeliest;  // in place of each scored token; of equals the first
};

// The part of the scored tokens in whose place both runs, of one text and one window, found the same token likeliest.
double agreement(const PerplexityResult& a, const PerplexityResult& b);

// `progress` hears of windows: done, and how many there are. Fewer than two tokens are invalid_argument.
Result<PerplexityResult> measure_perplexity(Engine& engine, std::span<const TokenId> text,
                                            const PerplexityOptions& options,
                                            FunctionRef<void(std::uint64_t, std::uint64_t)> progress);

// The log-likelihood of `token` under `logits`.
double log_likelihood(std::span<const float> logits, TokenId token);

}  // namespace moeflux
