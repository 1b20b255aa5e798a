#pragma once
// A step as its caller describes it: a batch of segments, one per session, and what the step reports. Plain
// values.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "experts/expert_statistics.h"
#include "layers/step.h"

namespace moeflux {

class Session;

enum class WantedLogits { none, last, all };

// A session's part of a step.
struct Segment {
  Session* session = nullptr;
  std::span<const TokenId> tokens;  // at least one
  WantedLogits logits = WantedLogits::none;
  std::span<float> out;  // [logits_rows()][vocabulary]; indeterminate if the segment fails
  const std::atomic<bool>* cancel = nullptr;  // of this segment alone, read before every layer; may be null

  // Number of trailing tokens whose logits are wanted.
  std::size_t logits_rows() const {
    switch (logits) {
      case WantedLogits::none: return 0;
      case WantedLogits::last: return 1;
      case WantedLogits::all: return tokens.size();
    }
    return 0;
  }
};

// Work, counted where it begins, and the time it took.
struct StepStatistics {
  std::uint64_t rows = 0;
  std::uint64_t matrix_calls = 0;  // products of the batch with a resident matrix
  std::uint64_t fetches = 0;       // of experts
  std::uint64_t experts_served = 0;
  std::uint64_t expert_visits = 0;  // experts multiplied by their rows

  ExpertStatistics experts = {};  // how they were streamed
  std::chrono::nanoseconds took{0};

  static constexpr auto counters() {
    using S = StepStatistics;
    return std::array{&S::rows, &S::matrix_calls, &S::fetches, &S::experts_served, &S::expert_visits};
  }

  // Compares the work alone: neither cache hits nor time.
  friend bool operator==(const StepStatistics& a, const StepStatistics& b) {
    return std::ranges::all_of(counters(), [&](auto counter) { return a.*counter == b.*counter; });
  }
  StepStatistics& operator+=(const StepStatistics& other) {
    for (const auto counter : counters()) this->*counter += other.*counter;
    experts += other.experts;
    took += other.took;
    return *this;
  }
};

}  // namespace moeflux
