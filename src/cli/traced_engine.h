#pragma once
// An engine, and the file that its trace is written to if somebody asked for one. Move-only; one thread at a time.

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "measure/trace_recorder.h"

namespace moeflux::cli {

class TracedEngine {
 public:
  // `trace`: empty: none.
  static Result<TracedEngine> open(FileSystem& files, const std::filesystem::path& model,
                                   EngineOptions options, const std::string& trace) {
    TracedEngine traced;
    if (!trace.empty()) {
      MF_TRY(traced.recorder_, TraceRecorder::create(files, trace));
      traced.recorder_->attach(options);
    }
    MF_TRY(traced.engine_, Engine::open(files, model, options));
    return traced;
  }

  Engine& operator*() const { return *engine_; }
  Engine* operator->() const { return engine_.get(); }

  // Once, after the last step.
  Status finish_trace() const { return recorder_ ? recorder_->finish() : Status(); }

 private:
  TracedEngine() = default;

  std::unique_ptr<TraceRecorder> recorder_;  // goes last
  std::shared_ptr<Engine> engine_;
};

}  // namespace moeflux::cli
