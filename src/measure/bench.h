#pragma once
// How fast a model runs on this machine, and how much of what the machine could do that is.
//
// A prompt and then single tokens, several times; tokens are random, so that the text does not matter, and who wants
// the routers not to matter either gives a Routing. Each round begins with an empty session and whatever the round
// before left in the expert cache. Numbers of a noisy machine are medians with their spread, and what it could do is
// measured before and after each phase of a round: a fraction is the median of the rounds' own.

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/sizes.h"
#include "engine/engine.h"
#include "layers/routing.h"
#include "measure/quantiles.h"

namespace moeflux {

// Fewer resident weights than these would be read from caches.
inline constexpr std::uint64_t kReadWeightsBytes = 256 * kMiB;

struct BenchOptions {
  std::uint32_t prompt_tokens = 512;  // 0: no prompt but one token
  std::uint32_t decode_tokens = 64;
  std::uint32_t repeats = 3;
  std::uint32_t warm_ups = 1;  // rounds that are not counted
  std::uint32_t batch = 1;     // sessions that decode together
  std::uint64_t seed = 0;
  bool compares = false;  // with what the machine could do
  // Of resident weights, read to see how fast memory is; a model that has fewer is not compared with memory.
  std::uint64_t read_weights_bytes = kReadWeightsBytes;
  Routing* routing = nullptr;  // null: the model's own
  const std::atomic<bool>* cancel = nullptr;
};

// What all counted rounds took for one of the two.
struct BenchPhase {
  std::uint64_t tokens = 0;  // of a round
  Quartiles tokens_per_second;
  StepStatistics steps;  // of all rounds
};

// What the machine could do between the rounds, and how much of it they did.
struct BenchLimit {
  double per_second = 0;
  double fraction = 0;
};

struct BenchResult {
  BenchPhase prompt, decode;
  std::optional<BenchLimit> memory;         // bytes of resident weights that are only read; decode
  std::optional<BenchLimit> compute;        // products of bytes in registers; prompt
  std::uint64_t touched_bytes_a_token = 0;  // of weights, by a token that is decoded
  std::uint64_t products_a_token = 0;       // with weights, by a token of a prompt: without the logits
  std::uint64_t major_faults = 0;           // during the counted rounds
};

// `progress(done, all)`: rounds, with those that are not counted.
Result<BenchResult> run_bench(Engine& engine, const BenchOptions& options,
                              FunctionRef<void(std::uint32_t done, std::uint32_t all)> progress);

}  // namespace moeflux
