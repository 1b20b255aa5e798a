#pragma once
// What an engine has done since it was opened, and the memory that the states of its sessions take now. Plain
// values; Engine::statistics() fills them.

#include <chrono>
#include <cstdint>

#include "state/block_pool.h"

namespace moeflux {

// Steps that succeeded, and what became of the others. A batch that is refused before any work is no step.
struct StepTotals {
  std::uint64_t steps = 0;  // that succeeded
  std::uint64_t rows = 0;   // of these steps
  std::uint64_t failed = 0, cancelled = 0;
  std::chrono::nanoseconds took{0};  // of the steps that succeeded

  friend bool operator==(const StepTotals&, const StepTotals&) = default;
};

struct EngineStatistics {
  StepTotals steps;
  PoolUsage states;  // KV and recurrent states, of checkpoints and snapshots too
};

}  // namespace moeflux
