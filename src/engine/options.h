#pragma once
// How to open an engine. Plain values.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "experts/expert_source.h"
#include "kernels/ops.h"
#include "model/packed_model.h"
#include "state/kv_pool.h"

namespace moeflux {

// What a model runs with unless it is told otherwise.
inline constexpr Precision kDefaultPrecision = Precision::exact;

struct EngineOptions {
  Precision precision = kDefaultPrecision;
  std::string isa = {};       // a table of kernels; empty: the fastest that runs here
  unsigned threads = 0;       // 0: one a physical core
  std::uint32_t context = 0;  // positions of a session at most; 0: 8192, or the model's own if that is less
  std::uint32_t step_rows = 512;        // rows of a step at most: longer prompts take several steps
  std::uint32_t experts_per_token = 0;  // 0: the model's own; fewer is another, cheaper model
  std::uint64_t kv_budget_bytes = KvPool::kNoBudget;  // keys and values of all sessions together

  // Memory that the engine may take; 0: what the machine has available, and its cgroup allows.
  std::uint64_t usable_memory_bytes = 0;

  // Where experts come from, and what they take of memory; empty: all of them are held.
  std::function<Result<std::unique_ptr<ExpertSource>>(const PackedModel&)> experts = {};
  std::uint64_t experts_bytes = 0;
};

inline constexpr std::uint32_t kDefaultContext = 8192;

}  // namespace moeflux
