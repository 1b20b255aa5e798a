#pragma once
// Files and directories, behind a seam.
//
// Everything in moeflux that touches a disk goes through a FileSystem that it was given, so a test can
// hand it one that fails (io/faulty_file_system.h): short reads, EIO, a full disk, a file that shrinks
// while it is open. PosixFileSystem is the real one.
//
//   FileSystem  opens, renames, lists; stateless in the real implementation.    thread-safe
//   ReadFile    one open file; reads name their own offset, so there is no       thread-safe
//               position to share.
//   WriteFile   one file being written, from its beginning to its end.           one thread at a time
//
// Paths go to the system as they are. Every error names the path, and the place in it where there is one.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace moeflux {

enum class FileKind { regular, directory, other };  // symbolic links are followed

struct FileInfo {
  FileKind kind;
  std::uint64_t size_bytes;  // of a regular file; otherwise 0
};

class ReadFile {
 public:
  explicit ReadFile(std::filesystem::path path) : path_(std::move(path)) {}
  virtual ~ReadFile() = default;
  ReadFile(const ReadFile&) = delete;
  ReadFile& operator=(const ReadFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // The size now, asked from the system: it can change while the file is open.
  virtual Result<std::uint64_t> size() const = 0;

  // Reads at most out.size() bytes at `offset` and says how many; 0 is the end of the file.
  // May return fewer than asked for without being at the end.
  virtual Result<std::size_t> read_some(std::uint64_t offset, std::span<std::byte> out) const = 0;

  // Fills `out`, however many reads that takes. An end of file before that is `corrupt_data`:
  // it says where, how much was expected and how much was there.
  Status read_exactly(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
};

class WriteFile {
 public:
  explicit WriteFile(std::filesystem::path path) : path_(std::move(path)) {}
  virtual ~WriteFile() = default;  // closes; bytes that were not synced may be lost
  WriteFile(const WriteFile&) = delete;
  WriteFile& operator=(const WriteFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Writes all of `bytes` after what was written before. A full disk is `no_space`.
  virtual Status append(std::span<const std::byte> bytes) = 0;

  // Returns once everything that was appended is on the disk.
  virtual Status sync() = 0;

 private:
  std::filesystem::path path_;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Opens a regular file. Anything else (a directory, a pipe, a device) is refused without blocking.
  virtual Result<std::unique_ptr<ReadFile>> open_read(const std::filesystem::path& path) = 0;

  // Creates an empty file, or empties an existing one.
  virtual Result<std::unique_ptr<WriteFile>> create(const std::filesystem::path& path) = 0;

  // What is at `path`, or `not_found`.
  virtual Result<FileInfo> info(const std::filesystem::path& path) = 0;

  // The names in a directory, sorted, without "." and "..".
  virtual Result<std::vector<std::string>> list(const std::filesystem::path& directory) = 0;

  // Creates one directory; one that exists already is success.
  virtual Status make_directory(const std::filesystem::path& directory) = 0;

  // Replaces `to` by `from` in one step; both are in the same file system.
  virtual Status rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;

  // Removes a file, or a directory with all that is in it. Nothing there is success.
  virtual Status remove_all(const std::filesystem::path& path) = 0;

  // Returns once the names in `directory` (files created in it, renamed into it) are on the disk.
  virtual Status sync_directory(const std::filesystem::path& directory) = 0;

  // Bytes that this user can still write on the disk that holds `path`.
  virtual Result<std::uint64_t> free_bytes(const std::filesystem::path& path) = 0;

  // Whether something is at `path`; an error other than "nothing there" is an error.
  Result<bool> exists(const std::filesystem::path& path);

  // The whole of a file that should be small. Larger than `limit_bytes` is refused before it is read.
  Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t limit_bytes);
};

}  // namespace moeflux
