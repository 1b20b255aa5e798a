#pragma once
// Direct reads with io_uring, with fixed files and fixed buffers if the system grants them.
//
// Each read in flight has a slot, and the slot number is the user data of its request. A slot is queued (in
// the submission ring, not yet passed to the kernel), in the kernel, or failed (the kernel did not accept the
// read; its completion is stored here). No read is lost: a read that fails for a transient reason is queued
// again a few times, and a read that the kernel does not accept completes with the errno of the refusal.
//
// Reads continue while the thread that submitted them is busy, and after it ends; any one thread at a time
// may collect them. The destructor drops queued reads and waits for those in the kernel.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/drive/drive.h"
#include "io/drive/drive_files.h"
#include "io/drive/fixed_ring.h"

struct io_uring;

namespace moeflux {

// `regions` cut into equal parts of at most 1 GiB, the kernel's limit for a fixed buffer, and sorted by
// address.
std::vector<std::span<std::byte>> buffers_of(std::span<const std::span<std::byte>> regions);

class UringDrive final : public Drive {
 public:
  // Opens a drive and moves `files` into it. If the system refuses a ring, returns null and leaves `files`
  // alone. Requires: files.is_direct(). Appends to `refusals` what the system refused.
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
  void register_files(std::vector<std::string>& refusals);
  void register_buffers(std::span<const std::span<std::byte>> memory, std::vector<std::string>& refusals);

  // The index of the fixed buffer that contains all of `memory`, if there is one.
  std::optional<int> fixed_buffer_of(std::span<const std::byte> memory) const;
  void queue(std::uint32_t slot);
  void fail_queued(int error_number);
  void wait_for_kernel(std::chrono::nanoseconds longest_wait);
  std::size_t take_failed(std::span<DriveCompletion> out);
  std::size_t take_completed(std::span<DriveCompletion> out);
  std::size_t take_ready(std::span<DriveCompletion> out);
  DriveCompletion complete(std::uint32_t slot, std::int32_t result);

  Ring ring_;
  DriveFiles files_;
  std::vector<std::span<std::byte>> buffers_;  // fixed buffers, sorted by address
  bool has_fixed_files_ = false;

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;  // slots
  FixedRing<std::uint32_t> queued_;  // slots, in the order of the submission ring
  FixedRing<FailedSlot> failed_;
  std::uint32_t in_kernel_ = 0;
};

}  // namespace moeflux
