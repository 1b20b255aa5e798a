#pragma once
// Reads by a few threads: direct ones where io_uring is refused, or through the page cache.
//
// Each thread takes the oldest read that waits, does it by pread and hands its completion over; so as many
// reads are under way as there are threads, and the others wait in order. No allocation after the start.
// Destroying it drops what no thread has begun and waits for what one has. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/thread_annotations.h"
#include "io/drive.h"
#include "io/drive_files.h"
#include "io/fixed_ring.h"

namespace moeflux {

class PreadDrive final : public Drive {
 public:
  // As the files are open, so they are read. Where the system does not start all the threads there are fewer;
  // not one is an error.
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
  std::size_t take_ended(std::span<DriveCompletion> out) MF_REQUIRES(mutex_);

  const DriveFiles files_;
  const std::uint32_t depth_;
  const bool drops_from_page_cache_;
  std::vector<std::thread> threads_;

  // The caller's.
  std::uint32_t out_ = 0;        // submitted and not collected
  std::uint32_t unflushed_ = 0;  // of which no thread was told

  Mutex mutex_;
  CondVar has_waiting_;
  CondVar has_ended_;
  FixedRing<DriveRead> waiting_ MF_GUARDED_BY(mutex_);
  FixedRing<DriveCompletion> ended_ MF_GUARDED_BY(mutex_);
  bool is_ending_ MF_GUARDED_BY(mutex_) = false;
};

}  // namespace moeflux
