#include "io/drive/drive_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <utility>

#include "base/check.h"
#include "base/memory/aligned_buffer.h"
#include "io/direct_io.h"
#include "io/regular_file.h"
#include "io/system_error.h"
#include "io/uninterrupted.h"

namespace moeflux {
namespace {

Error cannot_open(int error_number, const std::filesystem::path& path) {
  return system_error(error_number, fmt::format("cannot open '{}'", path.native()));
}

// Fails unless the file is regular and not empty. Clears O_NONBLOCK, because io_uring would return EAGAIN
// instead of waiting for the read.
Status prepare_file(int descriptor, const std::filesystem::path& path) {
  struct stat status;
  if (::fstat(descriptor, &status) != 0) return cannot_open(errno, path);
  MF_TRY_STATUS(require_regular_file(status.st_mode, path));
  if (status.st_size == 0) {
    return Error{ErrorCode::corrupt_data,
                 fmt::format("cannot read '{}': expected weights, found an empty file", path.native())};
  }
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags == -1 || ::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) != 0) return cannot_open(errno, path);
  return {};
}

// The errno with which the system refuses direct reads, or 0. Other errors are left to the reads themselves.
int direct_read_refusal(int descriptor, std::span<std::byte> scratch) {
  const ssize_t count = uninterrupted([&] { return ::pread(descriptor, scratch.data(), scratch.size(), 0); });
  return count == -1 && (errno == EINVAL || errno == EOPNOTSUPP) ? errno : 0;
}

}  // namespace

Result<DriveFiles> DriveFiles::open(std::span<const std::filesystem::path> paths, DriveAccess access) {
  const bool is_direct = access == DriveAccess::direct;
  MF_TRY(AlignedBuffer scratch, AlignedBuffer::create(kDriveAlignment, kDriveAlignment));
  DriveFiles opened;
  opened.files_.reserve(paths.size());
  for (const std::filesystem::path& path : paths) {
    // O_NONBLOCK: opening a pipe would block until it has a writer.
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (is_direct ? O_DIRECT : 0);
    UniqueFd descriptor(uninterrupted([&] { return ::open(path.c_str(), flags); }));
    if (!descriptor && is_direct && (errno == EINVAL || errno == EOPNOTSUPP))
      return open_without_direct(paths, {path, errno});
    if (!descriptor) return cannot_open(errno, path);
    MF_TRY_STATUS(prepare_file(descriptor.get(), path));
    const int refused = is_direct ? direct_read_refusal(descriptor.get(), scratch.bytes()) : 0;
    if (refused != 0) return open_without_direct(paths, {path, refused});
    opened.files_.push_back({path, std::move(descriptor)});
  }
  opened.is_direct_ = is_direct;
  return opened;
}

Result<DriveFiles> DriveFiles::open_without_direct(std::span<const std::filesystem::path> paths,
                                                   DirectRefusal refusal) {
  MF_TRY(DriveFiles opened, open(paths, DriveAccess::page_cache));
  opened.direct_refusal_ = std::move(refusal);
  return opened;
}

const DriveFiles::OpenFile& DriveFiles::at(std::uint32_t file) const {
  MF_REQUIRE(file < files_.size(), "the file is one of the drive's");
  return files_[file];
}

Result<FileStamp> DriveFiles::stamp(std::uint32_t file) const {
  struct stat status;
  if (::fstat(descriptor(file), &status) != 0) {
    return system_error(errno, fmt::format("cannot stat '{}'", path(file).native()));
  }
  constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;
  return FileStamp{static_cast<std::uint64_t>(status.st_size),
                   status.st_mtim.tv_sec * kNanosecondsPerSecond + status.st_mtim.tv_nsec};
}

DriveCompletion DriveFiles::read(const DriveRead& read) const {
  const int invalid = range_error(read);
  if (invalid != 0) return {.tag = read.tag, .error_number = invalid};
  const std::size_t wanted = std::min(read.out.size(), kMaxDriveReadBytes);
  const ssize_t count = uninterrupted([&] {
    return ::pread(descriptor(read.file), read.out.data(), wanted, static_cast<off_t>(read.offset));
  });
  if (count == -1) return {.tag = read.tag, .error_number = errno};
  return {.tag = read.tag, .bytes = static_cast<std::uint64_t>(count)};
}

void DriveFiles::advise_random_reads() const {
  for (const OpenFile& file : files_) ::posix_fadvise(file.descriptor.get(), 0, 0, POSIX_FADV_RANDOM);
}

void DriveFiles::drop_from_page_cache(const DriveRead& read) const {
  if (range_error(read) != 0 || read.out.empty()) return;  // a length of 0 would mean the rest of the file
  ::posix_fadvise(descriptor(read.file), static_cast<off_t>(read.offset), static_cast<off_t>(read.out.size()),
                  POSIX_FADV_DONTNEED);
}

int range_error(const DriveRead& read) {
  return read.offset > kLargestFileOffset || read.out.size() > kLargestFileOffset - read.offset ? EINVAL : 0;
}

std::chrono::steady_clock::time_point deadline_after(std::chrono::nanoseconds longest_wait) {
  constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365);  // the sum must not overflow
  return std::chrono::steady_clock::now() + std::min(longest_wait, kLongest);
}

std::string_view name_of_errno(int error_number) {
  const char* const name = ::strerrorname_np(error_number);
  return name != nullptr ? name : "an unknown error";
}

}  // namespace moeflux
