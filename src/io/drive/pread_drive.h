#pragma once
// Reads by several threads: direct reads if io_uring is refused, or reads through the page cache.
//
// Each thread takes the oldest queued read and executes it with pread, so at most threads() reads run at a
// time. No allocation after start(). The destructor drops queued reads and waits for running ones. One
// calling thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/thread_annotations.h"
#include "io/drive/drive.h"
#include "io/drive/drive_files.h"
#include "io/drive/fixed_ring.h"

namespace moeflux {

class PreadDrive final : public Drive {
 public:
  // Uses direct reads if the files were opened for them. Uses fewer threads if the system refuses to start
  // more; fails if not even one starts.
  static Result<std::unique_ptr<PreadDrive>> start(DriveFiles files, const DriveOptions& options);
  ~PreadDrive() override;

  unsigned threads() const { return static_cast<unsigned>(threads_.size()); }

  DriveKind kind() const override { return files_.is_direct() ? DriveKind::pread : DriveKind::buffered; }
  std::string describe() const override;
  std::uint32_t depth() const override { return depth_; }
  void submit(const DriveRead& read) override;
  void flush() override;
  std::size_t collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) override;
  Result<FileStamp> stamp(std::uint32_t file) const override { return files_.stamp(file); }
  const std::filesystem::path& path(std::uint32_t file) const override { return files_.path(file); }

 private:
  PreadDrive(DriveFiles files, const DriveOptions& options);

  void start_threads(unsigned wanted);
  void work();
  std::size_t take_completed(std::span<DriveCompletion> out) MF_REQUIRES(mutex_);

  const DriveFiles files_;
  const std::uint32_t depth_;
  const bool drops_from_page_cache_;
  std::vector<std::thread> threads_;

  // Used by the caller's thread only.
  std::uint32_t in_flight_ = 0;  // submitted and not collected
  std::uint32_t unflushed_ = 0;  // submitted, but no thread was notified

  Mutex mutex_;
  CondVar has_queued_;
  CondVar has_completed_;
  FixedRing<DriveRead> queued_ MF_GUARDED_BY(mutex_);
  FixedRing<DriveCompletion> completed_ MF_GUARDED_BY(mutex_);
  bool is_stopping_ MF_GUARDED_BY(mutex_) = false;
};

}  // namespace moeflux
