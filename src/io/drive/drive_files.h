#pragma once
// The open files of a drive: regular files that are not empty.
//
// Either all of them are open for direct reads, which bypass the page cache, or none is: if the system
// refuses direct reads of one file, is_direct() is false and direct_refusal() names that file. The files are
// closed by the destructor. Const functions are thread-safe.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/drive/drive.h"
#include "io/unique_fd.h"

namespace moeflux {

enum class DriveAccess { direct, page_cache };

struct DirectRefusal {
  std::filesystem::path path;
  int error_number = 0;
};

class DriveFiles {
 public:
  // With DriveAccess::direct, tries a direct read of each file, because some systems refuse only the read.
  static Result<DriveFiles> open(std::span<const std::filesystem::path> paths, DriveAccess access);

  std::size_t count() const { return files_.size(); }
  bool is_direct() const { return is_direct_; }
  const std::optional<DirectRefusal>& direct_refusal() const { return direct_refusal_; }

  int descriptor(std::uint32_t file) const { return at(file).descriptor.get(); }
  const std::filesystem::path& path(std::uint32_t file) const { return at(file).path; }
  Result<FileStamp> stamp(std::uint32_t file) const;

  // Reads synchronously, in the calling thread.
  DriveCompletion read(const DriveRead& read) const;

  // Tells the kernel not to read ahead into the page cache (POSIX_FADV_RANDOM). A hint.
  void advise_random_reads() const;
  // Removes the bytes of the read from the page cache (POSIX_FADV_DONTNEED). A hint.
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

// The most bytes that one read moves; a larger read completes with fewer bytes. io_uring and pread move less
// than 2 GiB per call.
inline constexpr std::size_t kMaxDriveReadBytes = std::size_t{1} << 30;

// EINVAL if the read reaches past the largest file offset, else 0. Such a read must not reach a system call,
// which gives these offsets other meanings (such as "where the last read ended").
int range_error(const DriveRead& read);

// The time `longest_wait` from now, which may be nanoseconds::max().
std::chrono::steady_clock::time_point deadline_after(std::chrono::nanoseconds longest_wait);

// The symbolic name: "EPERM".
std::string_view name_of_errno(int error_number);

}  // namespace moeflux
