#pragma once
// An engine, and the file of its trace if --trace was given. Move-only; one thread at a time.

#include <memory>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "measure/trace_recorder.h"

namespace moeflux::cli {

class TracedEngine {
 public:
  // `trace`: a file; empty: none.
  static Result<TracedEngine> open(FileSystem& files, PackedModel model, EngineOptions options,
                                   const std::string& trace) {
    TracedEngine traced;
    if (!trace.empty()) {
      MF_TRY(traced.recorder_, TraceRecorder::create(files, trace));
      traced.recorder_->attach(options);
    }
    MF_TRY(traced.engine_, Engine::open(files, std::move(model), options));
    return traced;
  }

  Engine& operator*() const { return *engine_; }
  Engine* operator->() const { return engine_.get(); }

  // Call once, after the last step.
  Status finish_trace() const { return recorder_ ? recorder_->finish() : Status(); }

 private:
  TracedEngine() = default;

  std::unique_ptr<TraceRecorder> recorder_;  // destroyed after the engine
  std::shared_ptr<Engine> engine_;
};

}  // namespace moeflux::cli
