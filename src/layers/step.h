#pragma once
// One pass of a batch through the model, as its layers see it.
//
// A batch is rows; each session that takes part has a run of neighbouring rows, its segment. Everything here is
// borrowed for the pass. A pass that measures scratch memory has segments without a state. One thread at a time.

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/trace.h"
#include "experts/expert_history.h"
#include "experts/expert_source.h"
#include "kernels/ops.h"
#include "layers/routing.h"
#include "layers/step_observer.h"
#include "state/session_state.h"

namespace moeflux {

struct StepSegment {
  SessionState* state = nullptr;  // null: measuring
  std::uint32_t first_row = 0, rows = 0;
  std::uint32_t position = 0;        // of its first row
  ExpertHistory* history = nullptr;  // where its last row's experts are noted; null: nowhere
};

struct Step {
  Ops& ops;
  ExpertSource& experts;
  std::span<const StepSegment> segments;
  std::uint32_t rows = 0;               // of all segments
  std::span<const RopeTable> rope;      // by the index that a layer was made with
  StepObserver* observer = nullptr;     // none: null
  std::uint32_t experts_per_token = 0;  // 0: the model's own
  TraceBuffer* trace = nullptr;         // none: null
  Routing* routing = nullptr;           // instead of the router's choices; none: null
  KvNumbers kv_numbers = KvNumbers::f32;
};

// What the operations want to know of the segments, in scratch memory.
std::span<const KvSegment> kv_segments(const Step& step, LayerId layer);
std::span<const RecurrentSegment> conv_segments(const Step& step, LayerId layer);
std::span<const RecurrentSegment> delta_segments(const Step& step, LayerId layer);

// Shows `rows` to the observer, if there is one.
void observe(const Step& step, StepPoint point, LayerId layer, const Rows& rows);

}  // namespace moeflux
