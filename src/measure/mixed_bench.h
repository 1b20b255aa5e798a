#pragma once
// Measures what a prompt chunk and decodes cost each other when they share a step.
//
// Each round runs a step of a chunk of a new session, a step of single tokens of other sessions, and a step
// of both, in turn. The result compares the medians. A server runs such steps while one client's prompt is
// read and others receive tokens. One thread at a time, like engine steps.

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "engine/engine.h"

namespace moeflux {

struct MixedOptions {
  std::uint32_t chunk_rows = 512;
  std::uint32_t decodes = 4;
  std::uint32_t decode_position = 512;  // of the decoding sessions
  std::uint32_t repeats = 9;
  std::uint64_t seed = 0;
  const std::atomic<bool>* cancel = nullptr;
};

// Seconds, medians of the rounds.
struct MixedResult {
  double chunk = 0, decodes = 0, both = 0;
  double ratio = 0;  // of `both` to the sum of the others: the median of the rounds' own
};

// Requires step_rows and a context of the engine that hold the chunk, and sessions for all; otherwise the
// errors of Engine::step.
Result<MixedResult> run_mixed_bench(Engine& engine, const MixedOptions& options);

}  // namespace moeflux
