#pragma once
// How fast a model runs on this machine, and how much of what the machine could do that is.
//
// A prompt and then single tokens, several times; tokens are random, so that the text does not matter, and who wants
// the routers not to matter either gives a Routing. Each round begins with an empty session and whatever the round
// before left in the expert cache. Numbers of a noisy machine are medians with their spread.

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "engine/engine.h"
#include "layers/routing.h"
#include "measure/quantiles.h"

namespace moeflux {

struct BenchOptions {
  std::uint32_t prompt_tokens = 512;  // 0: no prompt but one token
  std::uint32_t decode_tokens = 64;
  std::uint32_t repeats = 3;
  std::uint32_t warm_ups = 1;  // rounds that are not counted
  std::uint32_t batch = 1;     // sessions that decode together
  std::uint64_t seed = 0;
  Routing* routing = nullptr;  // null: the model's own
  const std::atomic<bool>* cancel = nullptr;
};

// What all counted rounds took for one of the two.
struct BenchPhase {
  std::uint64_t tokens = 0;  // of a round
  Quartiles tokens_per_second;
  StepStatistics steps;  // of all rounds
};

struct BenchResult {
  BenchPhase prompt, decode;
  std::uint64_t touched_bytes_a_token = 0;  // of weights, by a token that is decoded
  std::uint64_t products_a_token = 0;       // with weights, by a token of a prompt: without the logits
  std::uint64_t major_faults = 0;           // during the counted rounds
};

// `progress(done, all)`: rounds, with those that are not counted.
Result<BenchResult> run_bench(Engine& engine, const BenchOptions& options,
                              FunctionRef<void(std::uint32_t done, std::uint32_t all)> progress);

}  // namespace moeflux
