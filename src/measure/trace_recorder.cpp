#include "measure/trace_recorder.h"

#include <utility>

namespace moeflux {

Result<std::unique_ptr<TraceRecorder>> TraceRecorder::create(FileSystem& files,
                                                             const std::filesystem::path& path) {
  MF_TRY(std::unique_ptr<TraceFile> file, TraceFile::create(files, path));
  return std::unique_ptr<TraceRecorder>(new TraceRecorder(std::move(file)));
}

void TraceRecorder::attach(EngineOptions& options) {
  options.trace = &buffer_;
  options.after_step = [this] { write_if_half_full(); };
}

void TraceRecorder::write_if_half_full() {
  if (2 * buffer_.events().size() < TraceBuffer::kCapacity) return;
  Status written = file_->write(buffer_);
  if (status_) status_ = std::move(written);
}

Status TraceRecorder::finish() {
  MF_TRY_STATUS(status_);
  MF_TRY_STATUS(file_->write(buffer_));
  return file_->finish();
}

}  // namespace moeflux
