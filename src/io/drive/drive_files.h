#pragma once
// The open files of a drive.
//
// All of them are read directly, past the page cache, or none is: where the system refuses direct reads of
// one, is_direct() is false for all and direct_refusal() says of which. Regular files that are not empty,
// open for as long as this lives. What the const functions say may be asked by any thread.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/drive.h"
#include "io/unique_fd.h"

namespace moeflux {

enum class DriveAccess { direct, page_cache };

struct DirectRefusal {
  std::filesystem::path path;
  int error_number = 0;
};

class DriveFiles {
 public:
  // Where direct reads are asked for, each file is tried with one: some systems refuse them only then.
  static Result<DriveFiles> open(std::span<const std::filesystem::path> paths, DriveAccess access);

  std::size_t count() const { return files_.size(); }
  bool is_direct() const { return is_direct_; }
  const std::optional<DirectRefusal>& direct_refusal() const { return direct_refusal_; }

  int descriptor(std::uint32_t file) const { return at(file).descriptor.get(); }
  const std::filesystem::path& path(std::uint32_t file) const { return at(file).path; }
  Result<FileStamp> stamp(std::uint32_t file) const;

  // Reads now, in the calling thread.
  DriveCompletion read(const DriveRead& read) const;

  // Says to the system that reads of the page cache jump about, so that it does not read ahead. A hint.
  void expect_random_reads() const;
  // What was read leaves the page cache. A hint.
  void drop_from_page_cache(const DriveRead& read) const;

 private:
  struct OpenFile {
    std::filesystem::path path;
    UniqueFd descriptor;
  };

  static Result<DriveFiles> open_without_direct(std::span<const std::filesystem::path> paths,
                                                DirectRefusal refusal);
  const OpenFile& at(std::uint32_t file) const;

  std::vector<OpenFile> files_;
  bool is_direct_ = false;
  std::optional<DirectRefusal> direct_refusal_;
};

// The most that one read moves. What asks for more is given less, and goes on where it ended: neither
// io_uring nor pread counts further than 2 GiB.
inline constexpr std::size_t kLargestDriveReadBytes = std::size_t{1} << 30;

// Why no system call should see this read, as an errno; 0: it may. Offsets past the largest that a file can
// have mean other things to the system ("where the last read ended").
int problem_of(const DriveRead& read);

// Now and `longest_wait`, which may be endless.
std::chrono::steady_clock::time_point deadline_after(std::chrono::nanoseconds longest_wait);

// "EPERM"
std::string_view name_of_errno(int error_number);

}  // namespace moeflux
