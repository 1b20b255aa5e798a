#pragma once
// How to open an engine. Plain values.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/trace.h"
#include "experts/expert_source.h"
#include "experts/expert_store.h"
#include "kernels/ops.h"
#include "model/packed_model.h"
#include "state/kv_pool.h"

namespace moeflux {

// What a model runs with unless it is told otherwise. docs/performance.md has what it costs and what it gives.
inline constexpr Precision kDefaultPrecision = Precision::fast;

struct EngineOptions {
  Precision precision = kDefaultPrecision;
  std::string isa = {};       // a table of kernels; empty: the fastest that runs here
  unsigned threads = 0;       // 0: one a physical core
  std::uint32_t context = 0;  // positions of a session at most; 0: 8192, or the model's own if that is less
  std::uint32_t step_rows = 512;          // rows of a step at most: longer prompts take several steps
  std::uint32_t experts_per_token = 0;    // 0: the model's own; fewer is another, cheaper model
  KvNumbers kv_numbers = KvNumbers::f32;  // how keys and values are kept
  std::uint64_t kv_budget_bytes = KvPool::kNoBudget;  // keys and values of all sessions together

  // Memory that the engine may take; 0: what the machine has available, and its cgroup allows.
  std::uint64_t usable_memory_bytes = 0;

  // Experts are streamed through a cache of so many bytes; 0: as many as the memory plan leaves, all if that is enough.
  std::uint64_t expert_cache_bytes = 0;
  std::optional<DriveChoice> drive = {};  // nothing: by what the machine has
  bool prefetches = true;                 // guesses at the next experts are read while the drive idles
  bool verifies_reads = false;
  // Techniques of the store, to be switched off one by one when their worth is measured, and faults for tests.
  ExpertStoreOptions store = {};

  // Another source of experts, and what it takes of memory; for tests.
  std::function<Result<std::unique_ptr<ExpertSource>>(const PackedModel&)> experts = {};
  std::uint64_t experts_bytes = 0;

  TraceBuffer* trace = nullptr;           // what happens when; outlives the engine. None: null
  std::function<void()> after_step = {};  // a step is over, and the trace can be written down
};

inline constexpr std::uint32_t kDefaultContext = 8192;

}  // namespace moeflux
