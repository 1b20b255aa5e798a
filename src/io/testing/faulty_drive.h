#pragma once
// A drive that fails on demand, for the tests of every layer. Test code only.
//
// FaultyDrive wraps another drive, forwards reads to it and changes their completions according to the plan
// of the DriveFaults, which it shares with the test:
//
//   auto faults = std::make_shared<DriveFaults>();
//   FaultyDrive drive(std::move(real), faults);
//   faults->set_plan({.faults = {{.kind = DriveFaultKind::short_read, .index = 2}}});
//
// Like every drive, FaultyDrive is used by one thread at a time. DriveFaults is thread-safe.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_annotations.h"
#include "io/drive/drive.h"

namespace moeflux {

enum class DriveFaultKind {
  error,        // completes with error_number and does not touch the memory
  end_of_file,  // completes with 0 bytes and does not touch the memory
  short_read,   // half of the bytes, rounded to a multiple of 512 and at least 512, followed by garbage
  flipped_bit,  // all bytes, but one bit in the middle is wrong
  stuck,        // does not start before release_stuck(); destroying the drive drops it
};

// The fault of one read. Reads are counted from 0 in the order of submission since the plan was set.
struct DriveFault {
  DriveFaultKind kind = DriveFaultKind::error;
  std::uint64_t index = 0;
  bool and_all_later = false;
  int error_number = EIO;
};

struct DriveFaultPlan {
  std::vector<DriveFault> faults = {};  // the first that matches a read applies
  // The order of completions. If set, completions are held until all reads in flight have ended or the wait
  // times out, and collect() returns one per call: number pick(count) of the `count` held ones.
  std::function<std::size_t(std::size_t count)> pick = {};
};

// A pseudo-random pick that depends only on the seed.
std::function<std::size_t(std::size_t count)> random_pick(std::uint64_t seed);

// Thread-safe.
class DriveFaults {
 public:
  // Applies from the next read on, which has index 0.
  void set_plan(DriveFaultPlan plan);
  // Starts the stuck reads, at the drive's next submit(), flush() or collect(), or while it waits.
  void release_stuck();

  std::uint64_t reads() const;            // submitted so far
  std::uint64_t bytes() const;            // reported by completions so far
  std::uint64_t reads_in_flight() const;  // now: submitted and not collected
  std::uint64_t stuck() const;            // now

 private:
  friend class FaultyDrive;

  // Counts a new read and returns its fault, or null.
  const DriveFault* begin_read() MF_REQUIRES(mutex_);

  mutable Mutex mutex_;
  DriveFaultPlan plan_ MF_GUARDED_BY(mutex_);
  std::uint64_t next_index_ MF_GUARDED_BY(mutex_) = 0;
  std::uint64_t releases_ MF_GUARDED_BY(mutex_) = 0;
  std::uint64_t reads_ MF_GUARDED_BY(mutex_) = 0;
  std::uint64_t bytes_ MF_GUARDED_BY(mutex_) = 0;
  std::uint64_t reads_in_flight_ MF_GUARDED_BY(mutex_) = 0;
  std::uint64_t stuck_ MF_GUARDED_BY(mutex_) = 0;
};

class FaultyDrive final : public Drive {
 public:
  FaultyDrive(std::unique_ptr<Drive> drive, std::shared_ptr<DriveFaults> faults);
  ~FaultyDrive() override;

  DriveKind kind() const override { return drive_->kind(); }
  std::string describe() const override { return drive_->describe() + ", with faults"; }
  std::uint32_t depth() const override { return drive_->depth(); }
  void submit(const DriveRead& read) override;
  void flush() override;
  std::size_t collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) override;
  Result<FileStamp> stamp(std::uint32_t file) const override { return drive_->stamp(file); }
  const std::filesystem::path& path(std::uint32_t file) const override { return drive_->path(file); }

 private:
  enum class ReadState { free, stuck, in_drive, held };
  struct TrackedRead {
    ReadState state = ReadState::free;
    DriveRead read;
    DriveFaultKind fault = DriveFaultKind::error;
    bool has_fault = false;
  };

  void start_released();
  void poll_drive(std::chrono::nanoseconds longest_wait);
  void apply_fault(const TrackedRead& tracked, DriveCompletion& completion) const;
  bool has_pick() const;
  std::size_t next_ready(std::span<DriveCompletion> out);

  std::unique_ptr<Drive> drive_;
  std::shared_ptr<DriveFaults> faults_;
  std::vector<TrackedRead> reads_;     // indexed by the wrapped drive's tags
  std::vector<DriveCompletion> held_;  // completed and not collected
  std::uint32_t in_drive_ = 0;
  std::uint32_t stuck_ = 0;
  std::uint64_t releases_seen_ = 0;
};

}  // namespace moeflux
