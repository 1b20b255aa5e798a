#pragma once
// A drive of stated bandwidth and latency, in real time; the bytes are those of the files.
//
// Nothing happens behind its caller's back: a read is timed by a DriveModel when it is submitted, and done by
// pread when its time has come and its completion is collected. It is for showing what a slower drive would
// mean; what the machine's own drive or page cache takes for the bytes comes on top. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/drive.h"
#include "io/drive_files.h"
#include "io/drive_model.h"
#include "io/fixed_ring.h"

namespace moeflux {

class SimulatedDrive final : public Drive {
 public:
  SimulatedDrive(DriveFiles files, SimulatedDriveSpeed speed, std::uint32_t depth);

  DriveKind kind() const override { return DriveKind::sim; }
  std::string describe() const override;
  std::uint32_t depth() const override { return static_cast<std::uint32_t>(waiting_.capacity()); }
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

  std::size_t take_ended(std::span<DriveCompletion> out);

  DriveFiles files_;
  SimulatedDriveSpeed speed_;
  DriveModel model_;
  FixedRing<TimedRead> waiting_;  // they end in the order in which they came
};

}  // namespace moeflux
