#pragma once
// The interface to files and directories.
//
// All code in moeflux that touches a disk takes a FileSystem as an argument. PosixFileSystem is the real one;
// tests pass one that fails (io/testing/faulty_file_system.h): short reads, EIO, a full disk, a file that
// shrinks while it is open.
//
//   FileSystem  opens, renames, lists.                                           thread-safe
//   ReadFile    one open file; every read passes its offset, so there is no      thread-safe
//               shared file position.
//   WriteFile   one file being written, front to back.                           one thread at a time
//
// Paths are passed to the system unchanged. Every error names the path, and the offset if there is one.

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

  // The current size, from the system: it can change while the file is open.
  virtual Result<std::uint64_t> size() const = 0;

  // Reads at most out.size() bytes at `offset` and returns how many; 0 means end of file.
  // May return fewer than requested before the end of the file.
  virtual Result<std::size_t> read_some(std::uint64_t offset, std::span<std::byte> out) const = 0;

  // Fills `out`, with as many reads as it takes. If the file ends first, the error is `corrupt_data` and
  // states the offset and the expected and found number of bytes.
  Status read_exactly(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
};

class WriteFile {
 public:
  explicit WriteFile(std::filesystem::path path) : path_(std::move(path)) {}
  virtual ~WriteFile() = default;  // closes the file; a power loss may lose bytes that were not synced
  WriteFile(const WriteFile&) = delete;
  WriteFile& operator=(const WriteFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Writes all of `bytes` at the end of the file. A full disk is `no_space`.
  virtual Status append(std::span<const std::byte> bytes) = 0;

  // Returns when all appended bytes are on the disk.
  virtual Status sync() = 0;

 private:
  std::filesystem::path path_;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Opens a regular file. Anything else (a directory, a pipe, a device) is an error, without blocking.
  virtual Result<std::unique_ptr<ReadFile>> open_read(const std::filesystem::path& path) = 0;

  // Creates an empty file, or truncates an existing one.
  virtual Result<std::unique_ptr<WriteFile>> create(const std::filesystem::path& path) = 0;

  // Kind and size of `path`, or `not_found`.
  virtual Result<FileInfo> info(const std::filesystem::path& path) = 0;

  // The names in a directory, sorted, without "." and "..".
  virtual Result<std::vector<std::string>> list(const std::filesystem::path& directory) = 0;

  // Creates one directory, not its parents. Succeeds if the directory exists already.
  virtual Status make_directory(const std::filesystem::path& directory) = 0;

  // Atomically replaces `to` with `from`. Both are on the same file system.
  virtual Status rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;

  // Removes a file, or a directory with its contents. Succeeds if nothing is there.
  virtual Status remove_all(const std::filesystem::path& path) = 0;

  // Returns when the names in `directory` (of files created in it or renamed into it) are on the disk.
  virtual Status sync_directory(const std::filesystem::path& directory) = 0;

  // Bytes that this user can still write on the disk that holds `path`.
  virtual Result<std::uint64_t> free_bytes(const std::filesystem::path& path) = 0;

  // Whether something is at `path`. Any error but `not_found` is returned.
  Result<bool> exists(const std::filesystem::path& path);

  // The contents of a small file. A file larger than `limit_bytes` is `unsupported`, usually before it is
  // read.
  Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t limit_bytes);
};

}  // namespace moeflux
