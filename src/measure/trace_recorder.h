#pragma once
// Records the trace of a running engine to a file.
//
// Create it before the engine, attach it to the engine's options, and destroy it after the engine. Events are
// buffered in memory and written between steps when the buffer is half full, and by finish(), which returns
// the first write error. The engine keeps running after such an error. One thread at a time, like engine
// steps.

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "base/trace.h"
#include "engine/options.h"
#include "io/file_system.h"
#include "measure/trace_file.h"

namespace moeflux {

class TraceRecorder {
 public:
  static Result<std::unique_ptr<TraceRecorder>> create(FileSystem& files, const std::filesystem::path& path);

  void attach(EngineOptions& options);
  // Writes the remaining events. Call once, after the last step.
  Status finish();

 private:
  explicit TraceRecorder(std::unique_ptr<TraceFile> file) : file_(std::move(file)) {}

  void write_if_half_full();

  std::unique_ptr<TraceFile> file_;
  TraceBuffer buffer_;
  Status status_;
};

}  // namespace moeflux
