#pragma once
// Perplexity of a model on a text: exp of the mean negative log-likelihood of its tokens.
//
// The text is split into windows of `window` tokens, each run from an empty session. Only the tokens of the
// second half of a window are scored: they have at least half a window of context. This is llama.cpp's
// convention, except that windows after the first do not begin with a begin-of-text token. A text of at most
// one window is scored from its second token on. A remainder shorter than a window is ignored. Logits are
// reduced row by row in double, and none are kept. One thread at a time.

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
  std::uint32_t window = 512;  // from 3 to the engine's context
  const std::atomic<bool>* cancel = nullptr;
};

struct PerplexityResult {
  double perplexity = 0;
  double standard_error = 0;  // of the perplexity, with tokens taken as independent
  std::uint64_t scored_tokens = 0;
  std::uint64_t windows = 0;
  std::vector<TokenId> likeliest;  // the most probable token at each scored position, the first among equals
};

// The fraction of scored positions at which both runs found the same most probable token. Requires: both ran
// the same text and window.
double agreement(const PerplexityResult& a, const PerplexityResult& b);

// Calls `progress(done, all)` after each window. Fewer than two tokens are invalid_argument.
Result<PerplexityResult> measure_perplexity(Engine& engine, std::span<const TokenId> text,
                                            const PerplexityOptions& options,
                                            FunctionRef<void(std::uint64_t, std::uint64_t)> progress);

// The log-likelihood of `token` under `logits`.
double log_likelihood(std::span<const float> logits, TokenId token);

}  // namespace moeflux
