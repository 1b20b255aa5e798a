#pragma once
// What one pass of a batch through the model works with; inside the engine only.

#include <cstdint>
#include <span>

#include "engine/engine.h"

namespace moeflux {

inline constexpr std::uint32_t kMaxStepRows = 1u << 20;
inline constexpr unsigned kMaxThreads = 1024;

// Logits are computed for so many rows at a time, which bounds their scratch memory (a row of 248,320 is 1 MB).
inline constexpr std::uint32_t kLogitRows = 64;

struct Engine::Pass {
  Ops& ops;
  ExpertSource& experts;
  std::span<const Segment> batch;         // their sessions are not touched
  std::span<const StepSegment> segments;  // parallel to it
  std::uint32_t rows = 0;
  StepOptions options;
};

}  // namespace moeflux
