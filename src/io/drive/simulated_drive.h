#pragma once
// A drive with simulated bandwidth and latency, in real time. The bytes come from the files.
//
// It has no threads: submit() computes the end of a read with a DriveModel, and collect() does it with pread
// when that time has passed. It shows the effect of a slower drive; the time that the machine's own drive or
// page cache takes is added. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/drive/drive.h"
#include "io/drive/drive_files.h"
#include "io/drive/drive_model.h"
#include "io/drive/fixed_ring.h"

namespace moeflux {

class SimulatedDrive final : public Drive {
 public:
  SimulatedDrive(DriveFiles files, SimulatedDriveSpeed speed, std::uint32_t depth);

  DriveKind kind() const override { return DriveKind::sim; }
  std::string describe() const override;
  std::uint32_t depth() const override { return static_cast<std::uint32_t>(queued_.capacity()); }
  void submit(const DriveRead& read) override;
  void flush() override {}
  std::size_t collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) override;
  Result<FileStamp> stamp(std::uint32_t file) const override { return files_.stamp(file); }
  const std::filesystem::path& path(std::uint32_t file) const override { return files_.path(file); }

 private:
  struct TimedRead {
    DriveRead read;
    std::chrono::nanoseconds ends_at{0};
  };

  std::size_t take_completed(std::span<DriveCompletion> out);

  DriveFiles files_;
  SimulatedDriveSpeed speed_;
  DriveModel model_;
  FixedRing<TimedRead> queued_;  // reads end in the order of submission
};

}  // namespace moeflux
