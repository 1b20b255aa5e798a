#include "experts/guess_accounting.h"

#include <algorithm>

namespace moeflux {

void GuessAccounting::confirm() {
  judge(1);
  probe_interval_ = 0;
}

void GuessAccounting::refute() {
  judge(0);
  ++counts_.wrong_guesses;
}

void GuessAccounting::use(bool is_ready, std::uint64_t bytes) {
  --unused_;
  ++(is_ready ? counts_.useful_guesses : counts_.late_guesses);
  (is_ready ? counts_.useful_bytes : counts_.late_bytes) += bytes;
}

void GuessAccounting::waste(std::uint64_t bytes) {
  --unused_;
  counts_.wasted_bytes += bytes;
}

bool GuessAccounting::allows_read(float confidence, std::uint64_t fetch) {
  if (confidence < kLeastConfidence) return false;
  if (precision_ >= kLeastPrecision) {
    next_probe_ = fetch + kFirstProbeInterval;
    return true;
  }
  if (fetch < next_probe_) return false;
  probe_interval_ = std::clamp(2 * probe_interval_, kFirstProbeInterval, kLongestProbeInterval);
  next_probe_ = fetch + probe_interval_;
  return true;
}

}  // namespace moeflux
