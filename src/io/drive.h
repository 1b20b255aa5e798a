#pragma once
// Many reads of many files at once: asked for now, finished later, in any order.
//
// A Drive has its files open and answers reads of them. The memory of a read belongs to the drive from
// submit() until its completion is collected. Where a drive has threads, rings or clocks, they are inside it:
// its caller is one thread at a time, and learns of completions only when it asks.
//
//   drive.submit(read); ...; drive.flush();
//   const std::size_t count = drive.collect(completions, std::chrono::milliseconds(5));
//
// Destroying a drive waits for the reads that the system is still working on, since it may write into their
// memory.
//
//   uring     io_uring and direct reads, with fixed files and, where memory may be locked, fixed buffers
//   pread     direct reads by a few threads, where io_uring is refused
//   buffered  ordinary reads by a few threads: through the page cache
//   sim       a drive of stated bandwidth and latency, for demonstration; the bytes are the real ones

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

namespace moeflux {

enum class DriveKind { uring, pread, buffered, sim };
std::string_view name_of(DriveKind kind);

inline constexpr std::size_t kDriveAlignment = 4096;  // of a read's offset, length and memory

struct DriveRead {
  std::uint64_t tag = 0;   // comes back with the completion
  std::uint32_t file = 0;  // index of the paths that the drive was opened with
  std::uint64_t offset = 0;
  std::span<std::byte> out;
};

// How a read ended. Fewer bytes than were asked for are no error: at the end of a file, or because the system
// broke the read off, when it can be continued where it ended.
struct DriveCompletion {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  int error_number = 0;  // 0: none
};

// What tells a file from its successor.
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
  // In words: "io_uring, direct reads, fixed buffers".
  virtual std::string describe() const = 0;
  // Reads that may be out at a time, submitted and not collected.
  virtual std::uint32_t depth() const = 0;

  // Takes a read of one of the drive's files, while fewer than depth() are out. Never blocks and never fails:
  // what is wrong with it is said by its completion. Direct reads that are not aligned end with EINVAL; more
  // than 1 GiB is given in part.
  virtual void submit(const DriveRead& read) = 0;
  // Hands what was submitted to the system. Until then it may not have begun. Reads go on when the thread
  // that submitted them ends.
  virtual void flush() = 0;
  // Fills `out` with completions and says how many. Without any it waits for one, `longest_wait` at most; 0:
  // not at all. Flushes before it waits. Where no read is out there is nothing to wait for: 0, at once.
  virtual std::size_t collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) = 0;

  // Of the open file, now.
  virtual Result<FileStamp> stamp(std::uint32_t file) const = 0;
  virtual const std::filesystem::path& path(std::uint32_t file) const = 0;

 protected:
  Drive() = default;
};

// A simulated drive: one queue, a latency that waiting reads overlap, and a bandwidth that they share.
struct SimulatedDriveSpeed {
  std::uint64_t bytes_per_second = 0;
  std::chrono::nanoseconds latency{0};
};

struct DriveChoice {
  DriveKind kind = DriveKind::uring;
  SimulatedDriveSpeed simulated = {};  // sim
};

// "uring", "pread", "buffered", "sim:3G,100us": what follows sim is a SIZE a second, and a time in ns, us, ms
// or s, of a minute at most.
Result<DriveChoice> parse_drive_choice(std::string_view text);

struct DriveOptions {
  DriveChoice choice = {};
  std::uint32_t depth = 128;  // reads at a time, 1 to 4096
  unsigned threads = 8;       // of pread and buffered, 1 to 1024
  // buffered: what has been read leaves the page cache again. For files that do not fit there.
  bool drop_from_page_cache = false;
  // Where reads will go, for fixed buffers. Alive until the drive is gone. Each is registered in parts of 1
  // GiB at most.
  std::vector<std::span<std::byte>> memory = {};
  // uring: whether to register it. Registering locks all of the memory at once.
  bool uses_fixed_buffers = true;
};

struct OpenedDrive {
  std::unique_ptr<Drive> drive;
  // What was refused on the way to this drive, in words: "io_uring is refused (EPERM); reading with pread; to
  // allow ...".
  std::vector<std::string> refusals;
};

// Opens the drive that was asked for, or the next that the system allows: uring, then pread, then buffered.
// An error is a file that cannot be opened at all, is not regular or is empty; no file; and options that make
// no sense.
Result<OpenedDrive> open_drive(std::span<const std::filesystem::path> paths, const DriveOptions& options);

}  // namespace moeflux
