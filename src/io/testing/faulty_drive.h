#pragma once
// A drive that fails on demand, for the tests of every layer.
//
// FaultyDrive passes reads on to another drive and changes how they end, as the DriveFaults say that its test
// keeps:
//
//   auto faults = std::make_shared<DriveFaults>();
//   FaultyDrive drive(std::move(real), faults);
//   faults->set_plan({.faults = {{.kind = DriveFaultKind::short_read, .index = 2}}});
//
// The drive is one thread at a time's, as all are. The faults may be changed at any time, by any thread.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_annotations.h"
#include "io/drive.h"

namespace moeflux {

enum class DriveFaultKind {
  error,        // ends with error_number; its memory is not touched
  end_of_file,  // ends with 0 bytes; its memory is not touched
  short_read,   // half of the bytes, a multiple of 512 and at least one, and rubbish behind them
  flipped_bit,  // all bytes, one bit in the middle of them wrong
  stuck,        // does not begin before release_stuck(); when the drive is destroyed it never does
};

// What happens to one of the reads, counted from 0 in the order of submission since the plan was set.
struct DriveFault {
  DriveFaultKind kind = DriveFaultKind::error;
  std::uint64_t index = 0;
  bool and_all_later = false;
  int error_number = EIO;
};

struct DriveFaultPlan {
  std::vector<DriveFault> faults = {};  // the first that matches a read is its
  // In which order reads end. Where it is given, completions are held until all reads that are out have ended
  // (or the wait is over), and handed out one a call: pick(count) says which of the `count` that are held.
  std::function<std::size_t(std::size_t count)> pick = {};
};

// A pick that depends on the seed alone.
std::function<std::size_t(std::size_t count)> random_pick(std::uint64_t seed);

// Thread-safe.
class DriveFaults {
 public:
  // From the next read on; counting starts anew.
  void set_plan(DriveFaultPlan plan);
  // Reads that are stuck begin, at the drive's next submit(), flush() or collect(), or while it waits.
  void release_stuck();

  // Since the beginning.
  std::uint64_t reads() const;      // submitted
  std::uint64_t bytes() const;      // that the completions spoke of
  std::uint64_t reads_out() const;  // now: submitted and not collected
  std::uint64_t stuck() const;      // now

 private:
  friend class FaultyDrive;

  // What befalls the next read.
  const DriveFault* begin_read() MF_REQUIRES(mutex_);

  mutable Mutex mutex_;
  DriveFaultPlan plan_ MF_GUARDED_BY(mutex_);
  std::uint64_t next_index_ MF_GUARDED_BY(mutex_) = 0;
  std::uint64_t releases_ MF_GUARDED_BY(mutex_) = 0;
  std::uint64_t reads_ MF_GUARDED_BY(mutex_) = 0;
  std::uint64_t bytes_ MF_GUARDED_BY(mutex_) = 0;
  std::uint64_t reads_out_ MF_GUARDED_BY(mutex_) = 0;
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
  enum class ReadState { free, stuck, in_drive, ended };
  struct TrackedRead {
    ReadState state = ReadState::free;
    DriveRead read;
    DriveFaultKind fault = DriveFaultKind::error;
    bool has_fault = false;
  };

  void begin_released();
  void gather(std::chrono::nanoseconds longest_wait);
  void spoil(const TrackedRead& tracked, DriveCompletion& completion) const;
  bool holds_until_all_ended() const;
  std::size_t hand_out(std::span<DriveCompletion> out);

  std::unique_ptr<Drive> drive_;
  std::shared_ptr<DriveFaults> faults_;
  std::vector<TrackedRead> reads_;     // the wrapped drive's tags are indices of these
  std::vector<DriveCompletion> held_;  // ended and not handed out
  std::uint32_t in_drive_ = 0;
  std::uint32_t stuck_ = 0;
  std::uint64_t releases_seen_ = 0;
};

}  // namespace moeflux
