#pragma once
// Measures how fast a model runs on this machine, and what fraction of the machine's limits that is.
//
// Each round runs a prompt and then single tokens, from an empty session; the expert cache keeps the contents
// from the round before. Tokens are random, so no text is needed. A RoutingOverride in the options makes the
// choice of experts independent of the model too. Results are medians with their spread, since machines are
// noisy. The limits are measured before and after each phase of a round; a fraction is the median of the
// rounds' own fractions. One thread at a time, like engine steps.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/sizes.h"
#include "engine/engine.h"
#include "layers/routing_override.h"
#include "measure/quantiles.h"

namespace moeflux {

// Fewer bytes of resident weights would partly stay in the processor's caches.
inline constexpr std::uint64_t kReadWeightsBytes = 256 * kMiB;
// The same for a processor with a cache of `cache_bytes`.
constexpr std::uint64_t read_weights_bytes(std::uint64_t cache_bytes) {
  return std::max(kReadWeightsBytes, 4 * cache_bytes);
}

struct BenchOptions {
  std::uint32_t prompt_tokens = 512;  // 0: a prompt of one token
  std::uint32_t decode_tokens = 64;
  std::uint32_t repeats = 3;
  std::uint32_t warm_ups = 1;  // rounds before the counted ones
  std::uint32_t batch = 1;     // sessions that decode together
  std::uint64_t seed = 0;
  bool compares = false;  // also measure the machine's limits
  // Bytes of resident weights to read when measuring the memory bandwidth. A model with fewer gets no memory
  // limit.
  std::uint64_t read_weights_bytes = kReadWeightsBytes;
  RoutingOverride* routing = nullptr;  // null: the router's own choices
  const std::atomic<bool>* cancel = nullptr;
};

// The prompts or the decodes of all counted rounds.
struct BenchPhase {
  std::uint64_t tokens = 0;  // per round
  Quartiles tokens_per_second;
  StepStatistics steps;  // summed over the rounds
};

// A limit of the machine, measured between the rounds, and the fraction of it that they reached.
struct BenchLimit {
  double per_second = 0;
  double fraction = 0;
};

struct BenchResult {
  BenchPhase prompt, decode;
  std::optional<BenchLimit> memory;   // decode: the rate at which the threads read resident weights
  std::optional<BenchLimit> compute;  // prompt: the peak int8 multiply-add rate, with operands in registers
  std::uint64_t touched_bytes_per_token = 0;  // bytes of weights per decoded token
  // Bytes of states that a decoded token reads and writes: recurrent states twice, keys and values once.
  std::uint64_t state_bytes_per_token = 0;
  // Multiply-adds per prompt token, without the embedding and the output head.
  std::uint64_t products_per_token = 0;
  std::uint64_t major_faults = 0;  // in the counted rounds
};

// Calls `progress(done, all)` after each round; warm-ups count too.
Result<BenchResult> run_bench(Engine& engine, const BenchOptions& options,
                              FunctionRef<void(std::uint32_t done, std::uint32_t all)> progress);

}  // namespace moeflux
