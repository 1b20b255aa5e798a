#pragma once
// The trace of an engine at work, written to a file as it goes.
//
// Created before the engine, attached to its options, and alive until the engine is gone. Events gather in memory and
// are written between steps, when half of it is full, and by finish(). An error of the file is kept for finish() to
// tell: the engine goes on. One thread at a time, as the engine's steps.

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
  // Writes what is left; once, after the last step.
  Status finish();

 private:
  explicit TraceRecorder(std::unique_ptr<TraceFile> file) : file_(std::move(file)) {}

  void write_if_half_full();

  std::unique_ptr<TraceFile> file_;
  TraceBuffer buffer_;
  Status status_;
};

}  // namespace moeflux
