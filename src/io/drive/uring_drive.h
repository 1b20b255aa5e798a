#pragma once
// Direct reads by io_uring, with fixed files and fixed buffers where they are granted.
//
// Each read that is out has a slot here, whose number is all that the kernel is told of it. A slot is queued
// (in the ring, not yet seen by the kernel), in the kernel, or failed (its completion waits here, because the
// kernel did not take the read). Nothing is lost on the way: what the kernel breaks off for reasons that are
// not the read's own is queued again a few times, and what it refuses to take becomes a completion with the
// errno of the refusal.
//
// Reads that a thread submitted go on when it ends or is busy; another may collect them, one at a time.
// Destroying the drive drops what is queued and waits for what is in the kernel.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/drive.h"
#include "io/drive_files.h"
#include "io/fixed_ring.h"

struct io_uring;

namespace moeflux {

// `regions` in order of address, cut into equal parts of 1 GiB at most, which is what the kernel takes as one
// buffer.
std::vector<std::span<std::byte>> buffers_of(std::span<const std::span<std::byte>> regions);

class UringDrive final : public Drive {
 public:
  // Takes `files`, which are open for direct reads, and gives a drive; or, where the system refuses a ring,
  // nothing, and leaves them. What was refused is added to `refusals`.
  static std::unique_ptr<UringDrive> open(DriveFiles& files, const DriveOptions& options,
                                          std::vector<std::string>& refusals);
  ~UringDrive() override;

  bool has_fixed_buffers() const { return !buffers_.empty(); }

  DriveKind kind() const override { return DriveKind::uring; }
  std::string describe() const override;
  std::uint32_t depth() const override { return static_cast<std::uint32_t>(slots_.size()); }
  void submit(const DriveRead& read) override;
  void flush() override;
  std::size_t collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) override;
  Result<FileStamp> stamp(std::uint32_t file) const override { return files_.stamp(file); }
  const std::filesystem::path& path(std::uint32_t file) const override { return files_.path(file); }

 private:
  struct EndRing {
    void operator()(io_uring* ring) const;
  };
  using Ring = std::unique_ptr<io_uring, EndRing>;

  struct Slot {
    DriveRead read;
    std::uint32_t retries = 0;
  };
  struct FailedSlot {
    std::uint32_t slot = 0;
    int error_number = 0;
  };

  UringDrive(Ring ring, DriveFiles files, std::uint32_t depth);

  static Ring make_ring(std::uint32_t depth, std::vector<std::string>& refusals);
  void fix_files(std::vector<std::string>& refusals);
  void fix_buffers(std::span<const std::span<std::byte>> memory, std::vector<std::string>& refusals);

  // The fixed buffer in which all of `memory` lies: none, or its index.
  std::optional<int> fixed_buffer_of(std::span<const std::byte> memory) const;
  void queue(std::uint32_t slot);
  void fail_queued(int error_number);
  void wait_for_kernel(std::chrono::nanoseconds longest_wait);
  std::size_t take_failed(std::span<DriveCompletion> out);
  std::size_t take_finished(std::span<DriveCompletion> out);
  std::size_t take_ready(std::span<DriveCompletion> out);
  DriveCompletion end(std::uint32_t slot, std::int32_t result);

  Ring ring_;
  DriveFiles files_;
  std::vector<std::span<std::byte>> buffers_;  // fixed ones, by address; empty: none
  bool has_fixed_files_ = false;

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;  // slots
  FixedRing<std::uint32_t> queued_;  // slots, in the order of the ring
  FixedRing<FailedSlot> failed_;
  std::uint32_t in_kernel_ = 0;
};

}  // namespace moeflux
