#pragma once
// The last tokens of a text, and the penalties for repeating them.
//
// A window of `repeat_last_n` tokens, prompt and generation together. The repetition penalty applies to every
// token in the window; presence and frequency penalties apply to generated tokens only, as in OpenAI's API.
//
// Keeps nothing if the options have no penalty. Otherwise 8 bytes per token of the vocabulary and 8 per token
// of the window. Allocates in the constructor only. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sampling/options.h"

namespace moeflux {

class TokenHistory {
 public:
  enum class Origin : std::uint8_t { prompt, generation };

  TokenHistory(const SamplingOptions& options, std::size_t vocabulary_size);

  // False if the options have no penalty.
  bool in_use() const { return !counts_.empty(); }

  void add(TokenId token, Origin origin);

  // Applies the penalties to the logits of the tokens in the window. -infinity stays, and no logit becomes
  // infinite.
  void penalize(std::span<float> logits) const;

 private:
  struct Counts {
    std::uint32_t prompt = 0, generation = 0;
  };
  struct Entry {
    TokenId token;
    Origin origin;
  };

  void forget(const Entry& entry);

  double repetition_, presence_, frequency_;
  std::size_t window_;               // 0: no limit
  std::vector<Counts> counts_;       // by token
  std::vector<std::uint32_t> seen_;  // tokens with nonzero counts
  std::vector<Entry> entries_;       // a ring of window_ entries
  std::size_t oldest_ = 0;
};

}  // namespace moeflux
