#pragma once
// Asynchronous reads of a set of open files, completed in any order.
//
// The caller must not touch the memory of a read from submit() until its completion is collected. Threads,
// rings and clocks are internal to a drive: it is used by one thread at a time, and reports completions only
// from collect().
//
//   drive.submit(read); ...; drive.flush();
//   const std::size_t count = drive.collect(completions, std::chrono::milliseconds(5));
//
// Destroying a drive waits for reads that the kernel has started, because it may still write to their memory.
//
//   uring     direct reads with io_uring; fixed files and, if memory may be locked, fixed buffers
//   pread     direct reads by several threads; the fallback if io_uring is refused
//   buffered  reads through the page cache by several threads
//   sim       simulated bandwidth and latency, for demonstrations; the bytes come from the files

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/direct_io.h"

namespace moeflux {

enum class DriveKind { uring, pread, buffered, sim };
std::string_view name_of(DriveKind kind);

// Of the offset, length and memory of a read.
inline constexpr std::size_t kDriveAlignment = kDirectAlignment;

struct DriveRead {
  std::uint64_t tag = 0;   // returned with the completion
  std::uint32_t file = 0;  // index into the paths that the drive was opened with
  std::uint64_t offset = 0;
  std::span<std::byte> out;
};

// The result of a read. Fewer bytes than requested are not an error: the file ended, or the system stopped
// the read early. In the second case the caller can submit the rest.
struct DriveCompletion {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  int error_number = 0;  // errno, or 0
};

// Size and modification time of the open file; they differ after a write. A file renamed over the path is not
// noticed.
struct FileStamp {
  std::uint64_t size_bytes = 0;
  std::int64_t modified_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

class Drive {
 public:
  virtual ~Drive() = default;
  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  virtual DriveKind kind() const = 0;
  // Human-readable, for example "io_uring, direct reads, fixed buffers".
  virtual std::string describe() const = 0;
  // The queue depth: how many reads may be in flight, that is, submitted and not collected.
  virtual std::uint32_t depth() const = 0;

  // Adds a read of one of the drive's files. Requires: fewer than depth() reads are in flight. Never blocks
  // and never fails: errors are reported by the completion. An unaligned direct read completes with EINVAL. A
  // read of more than 1 GiB completes with fewer bytes.
  virtual void submit(const DriveRead& read) = 0;
  // Passes submitted reads to the system; before, they may not have started. Reads continue if the thread
  // that submitted them ends.
  virtual void flush() = 0;
  // Fills `out` with completions and returns how many. If there is none yet, flushes and waits up to
  // `longest_wait` for one; 0 means do not wait. Returns 0 at once if no read is in flight.
  virtual std::size_t collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) = 0;

  // The current stamp of the open file.
  virtual Result<FileStamp> stamp(std::uint32_t file) const = 0;
  virtual const std::filesystem::path& path(std::uint32_t file) const = 0;

 protected:
  Drive() = default;
};

// A simulated drive has one queue. The latencies of queued reads overlap, and they share the bandwidth.
struct SimulatedDriveSpeed {
  std::uint64_t bytes_per_second = 0;
  std::chrono::nanoseconds latency{0};
};

struct DriveChoice {
  DriveKind kind = DriveKind::uring;
  SimulatedDriveSpeed simulated = {};  // only for sim
};

// Parses "uring", "pread", "buffered" or "sim:3G,100us": a SIZE per second, and a latency in ns, us, ms or s,
// at most one minute.
Result<DriveChoice> parse_drive_choice(std::string_view text);

struct DriveOptions {
  DriveChoice choice = {};
  std::uint32_t depth = 128;  // reads in flight, 1–4096
  unsigned threads = 8;       // for pread and buffered, 1–1024
  // For buffered: evicts bytes from the page cache after reading them, for files that do not fit there.
  bool drop_from_page_cache = false;
  // The memory that reads will write to, for fixed buffers. It must outlive the drive. Each span is
  // registered in parts of at most 1 GiB.
  std::vector<std::span<std::byte>> memory = {};
  // For uring: whether to register `memory`. Registering locks all of it at once.
  bool uses_fixed_buffers = true;
};

struct OpenedDrive {
  std::unique_ptr<Drive> drive;
  // What the system refused while opening, human-readable, for example "io_uring is refused (EPERM); reading
  // with pread; to allow ...".
  std::vector<std::string> refusals;
};

// Opens the requested drive, or the first fallback that the system allows: uring, then pread, then buffered.
// Fails if a file cannot be opened, is empty or is not a regular file; if `paths` is empty; or if the options
// are invalid.
Result<OpenedDrive> open_drive(std::span<const std::filesystem::path> paths, const DriveOptions& options);

}  // namespace moeflux
