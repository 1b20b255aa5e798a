#pragma once
// One pass of a batch through the model, as the engine and the layers see it.
//
// A batch is a matrix of rows, one per token. Each session that takes part owns a run of neighboring rows,
// its segment. Everything here is borrowed for the pass. A pass that measures scratch memory has segments
// without state or history. One thread at a time.

#include <atomic>
#include <cstdint>
#include <span>
#include <utility>

#include "base/ids.h"
#include "base/result.h"
#include "base/trace.h"
#include "experts/expert_history.h"
#include "experts/expert_source.h"
#include "layers/routing_override.h"
#include "layers/step_observer.h"
#include "ops/ops.h"
#include "state/session_state.h"

namespace moeflux {

// A segment fails alone if its own tokens or numbers are at fault. It then has an error in `outcome`, and its
// rows, until they are removed before the next layer, are computed without effect on others.
struct StepSegment {
  SessionState* state = nullptr;              // null while measuring
  ExpertHistory* history = nullptr;           // receives the experts of the last row; null: not recorded
  std::span<const TokenId> tokens = {};       // one per row
  std::uint32_t first_row = 0;                // in the batch
  std::uint32_t position = 0;                 // of the first row, in its session
  std::uint32_t logits_rows = 0;              // the last `logits_rows` rows want logits
  std::span<float> logits = {};               // [logits_rows][vocabulary]
  const std::atomic<bool>* cancel = nullptr;  // of this segment alone; null: cannot be cancelled
  Status* outcome = nullptr;                  // null while measuring

  bool has_failed() const { return outcome != nullptr && !*outcome; }
  void fail(Error error) const {
    if (outcome != nullptr && *outcome) *outcome = std::move(error);
  }
  std::uint32_t rows() const { return static_cast<std::uint32_t>(tokens.size()); }
  SegmentRows in_batch() const { return {first_row, rows()}; }
};

// Optional hooks of the caller of a step; null if unused.
struct StepOptions {
  StepObserver* observer = nullptr;
  const std::atomic<bool>* cancel = nullptr;  // read before every layer
  RoutingOverride* routing = nullptr;         // replaces the routers' choices; for benchmarks
};

struct Step {
  Ops& ops;
  ExpertSource& experts;
  std::span<const StepSegment> segments;
  std::uint32_t rows = 0;               // of all segments
  bool all_or_none = false;             // the step fails with its first segment
  std::uint32_t experts_per_token = 0;  // 0: the model's own
  KvDtype kv_dtype = KvDtype::f32;
  TraceBuffer* trace = nullptr;  // null: none
  StepOptions options = {};
  std::span<const RopeTable> rope = {};  // one per Rope of the engine; layers know their index
};

// The segments as the operations take them, in scratch memory.
std::span<const KvSegment> kv_segments(const Step& step, LayerId layer);
std::span<const RecurrentSegment> conv_segments(const Step& step, LayerId layer);
std::span<const RecurrentSegment> delta_segments(const Step& step, LayerId layer);

// Shows `rows` to the observer, if there is one.
void observe(const Step& step, StepPoint point, LayerId layer, const Rows& rows);

}  // namespace moeflux
