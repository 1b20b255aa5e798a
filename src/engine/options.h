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
#include "model/packed_model.h"
#include "ops/ops.h"
#include "quant/kv_dtype.h"

namespace moeflux {

// docs/performance.md has what it costs in perplexity and gains in speed.
inline constexpr Precision kDefaultPrecision = Precision::fast;
inline constexpr std::uint32_t kDefaultContext = 8192;
inline constexpr std::uint32_t kDefaultStepRows = 512;
inline constexpr std::uint32_t kMaxStepRows = 1u << 20;
inline constexpr unsigned kMaxEngineThreads = 1024;
inline constexpr std::uint32_t kMaxSessions = 1u << 20;

struct EngineOptions {
  Precision precision = kDefaultPrecision;
  std::string isa = {};  // name of a kernel table; empty: the fastest that runs here
  unsigned threads = 0;  // 0: one per physical core
  // Maximum number of positions of a session; 0: kDefaultContext, or the model's own limit if that is less.
  std::uint32_t context = 0;
  std::uint32_t step_rows = kDefaultStepRows;  // maximum rows per step; longer prompts take several steps
  std::uint32_t experts_per_token = 0;         // 0: the model's own; fewer is faster but changes results
  KvDtype kv_dtype = KvDtype::f32;             // how keys and values are stored
  // Sessions that memory is planned for, each at the full context. More may be opened; they share the budget.
  std::uint32_t sessions = 1;
  // Keys, values and recurrent states of all sessions and snapshots; 0: what the memory plan leaves, at least
  // what `sessions` sessions need.
  std::uint64_t kv_budget_bytes = 0;
  // Called when the budget has no room for a step. Drops snapshots, and returns whether it dropped any; the
  // step fails only after it returned false. It must not call the engine. Empty: there are none to drop.
  std::function<bool()> release_snapshots = {};

  // Memory that the engine may use; 0: what the machine has available and its cgroup allows.
  std::uint64_t usable_memory_bytes = 0;

  // Size of the cache that experts are streamed through; 0: what the memory plan leaves, at most all experts.
  std::uint64_t expert_cache_bytes = 0;
  std::optional<DriveChoice> drive = {};  // nullopt: chosen by what fits in memory
  bool prefetches = true;                 // reads guessed experts while the drive is idle
  bool verifies_reads = false;
  // Switches for the store's techniques, so that a benchmark can measure each, and fault injection for tests.
  ExpertStoreOptions store = {};

  // Replaces the store by another source of experts that uses `experts_bytes` of memory; for tests.
  std::function<Result<std::unique_ptr<ExpertSource>>(const PackedModel&)> experts = {};
  std::uint64_t experts_bytes = 0;

  TraceBuffer* trace = nullptr;           // collects the timeline; outlives the engine; null: none
  std::function<void()> after_step = {};  // called after every step, also a failed one; may drain the trace
};

}  // namespace moeflux
