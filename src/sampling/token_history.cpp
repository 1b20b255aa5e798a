#include "sampling/token_history.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace moeflux {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

float rounded(double logit) {
  return static_cast<float>(std::clamp(logit, -double{kLargest}, double{kLargest}));
}

}  // namespace

TokenHistory::TokenHistory(const SamplingOptions& options, std::size_t vocabulary_size)
    : repetition_(options.repetition_penalty),
      presence_(options.presence_penalty),
      frequency_(options.frequency_penalty),
      window_(options.repeat_last_n > 0 ? static_cast<std::size_t>(options.repeat_last_n) : 0) {
  const bool penalties = repetition_ != 1.0 || presence_ != 0.0 || frequency_ != 0.0;
  if (!penalties || options.repeat_last_n == 0) return;
  counts_.resize(vocabulary_size);
  seen_.reserve(window_ == 0 ? vocabulary_size : std::min(window_ + 1, vocabulary_size));
  entries_.reserve(window_);
}

void TokenHistory::add(TokenId token, Origin origin) {
  if (!in_use()) return;
  MF_REQUIRE(token.index() < counts_.size(), "the token is one of the vocabulary");
  const Entry entry{token, origin};
  if (window_ != 0) {
    if (entries_.size() < window_) {
      entries_.push_back(entry);
    } else {
      forget(entries_[oldest_]);
      entries_[oldest_] = entry;
      oldest_ = (oldest_ + 1) % window_;
    }
  }
  Counts& counts = counts_[token.index()];
  if (counts.prompt == 0 && counts.generation == 0) seen_.push_back(token.index());
  ++(origin == Origin::prompt ? counts.prompt : counts.generation);
}

void TokenHistory::forget(const Entry& entry) {
  Counts& counts = counts_[entry.token.index()];
  --(entry.origin == Origin::prompt ? counts.prompt : counts.generation);
  if (counts.prompt != 0 || counts.generation != 0) return;
  *std::find(seen_.begin(), seen_.end(), entry.token.index()) = seen_.back();
  seen_.pop_back();
}

void TokenHistory::penalize(std::span<float> logits) const {
  for (const std::uint32_t token : seen_) {
    float& logit = logits[token];
    if (logit < -kLargest) continue;
    const Counts& counts = counts_[token];
    double value = static_cast<double>(logit);
    value = value > 0 ? value / repetition_ : value * repetition_;
    value -= static_cast<double>(counts.generation) * frequency_;
    if (counts.generation > 0) value -= presence_;
    logit = rounded(value);
  }
}

}  // namespace moeflux
