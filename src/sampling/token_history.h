#pragma once
// The last tokens of a text, and what repeating them costs.
//
// A window of `repeat_last_n` tokens, prompt and generation together. The repetition penalty concerns every
// token in it; presence and frequency penalties those that were generated, as OpenAI counts them.
//
// Without a penalty in the options nothing is kept. Otherwise 8 bytes a token of the vocabulary and 8 a
// token of the window; allocates in the constructor only. One thread at a time.

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

  // Whether there is anything to keep and to penalize.
  bool in_use() const { return !counts_.empty(); }

  void add(TokenId token, Origin origin);

  // Changes the logits of tokens in the window; those of -infinity stay, and none becomes infinite.
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
  std::vector<std::uint32_t> seen_;  // tokens whose counts are not zero
  std::vector<Entry> entries_;       // a ring of window_ entries
  std::size_t oldest_ = 0;
};

}  // namespace moeflux
