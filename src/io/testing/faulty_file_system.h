#pragma once
// A file system that fails on demand, for the tests of every layer. Test code only.
//
// FaultyFileSystem forwards each operation to another FileSystem, unless its FaultPlan makes it fail, and
// logs all operations. A test can therefore inject each failure in turn, count operations and check their
// order:
//
//   PosixFileSystem disk;
//   FaultyFileSystem files(disk);
//   files.set_plan({.faults = {{.operation = FileOperation::read, .index = 2, .error_number = EIO}}});
//
// The wrapped FileSystem must outlive it and its files; the files may outlive the FaultyFileSystem.
// Thread-safe.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

enum class FileOperation {
  open_read,
  size,  // of an open file
  read,
  create,
  append,
  sync,
  info,
  list,
  make_directory,
  rename,
  remove_all,
  sync_directory,
  free_bytes,
};

std::string_view name_of(FileOperation operation);

// One operation that fails instead of being done. The error code is the one that the real file system gives
// to `error_number`.
struct Fault {
  std::optional<FileOperation> operation = {};  // nullopt: any
  std::string file_name = {};  // last component of the path (rename: the old path); empty: any
  std::uint64_t index = 0;     // counted from 0 among the operations that match both
  bool and_all_later = false;
  int error_number = EIO;
};

// A file that is truncated while open: from the given operation on, size(), info() and reads behave as if the
// file ended at size_bytes.
struct Truncation {
  std::filesystem::path path;
  std::uint64_t size_bytes = 0;
  std::uint64_t from_operation = 0;  // counted from 0 over all operations and paths
};

// The faults to inject. An empty plan injects none.
struct FaultPlan {
  std::vector<Fault> faults = {};
  std::vector<Truncation> truncations = {};
  std::size_t longest_read_bytes = std::numeric_limits<std::size_t>::max();  // for short reads; at least 1
  // How many bytes can still be appended to all files together. The append that exceeds it writes what fits
  // and fails with no_space. Removing files does not free space.
  std::uint64_t disk_bytes = std::numeric_limits<std::uint64_t>::max();
};

// One entry of the log.
struct FileOperationRecord {
  FileOperation operation;
  std::filesystem::path path;         // for rename: the old path
  std::filesystem::path target = {};  // for rename: the new path
  std::uint64_t offset = 0;           // for read
  std::uint64_t bytes = 0;  // for read and append: bytes transferred, even if the operation failed later
  bool failed = false;
};

class FaultyFileSystem final : public FileSystem {
 public:
  explicit FaultyFileSystem(FileSystem& disk);

  // Replaces the plan. Operations are counted from 0 again; the log is kept.
  void set_plan(FaultPlan plan);

  // All operations so far, in the order in which they ended.
  std::vector<FileOperationRecord> log() const;
  void clear_log();

  // From the log: how many operations of this kind there were, including failed ones, and how many bytes they
  // transferred.
  std::uint64_t count(FileOperation operation) const;
  std::uint64_t bytes(FileOperation operation) const;

  Result<std::unique_ptr<ReadFile>> open_read(const std::filesystem::path& path) override;
  Result<std::unique_ptr<WriteFile>> create(const std::filesystem::path& path) override;
  Result<FileInfo> info(const std::filesystem::path& path) override;
  Result<std::vector<std::string>> list(const std::filesystem::path& directory) override;
  Status make_directory(const std::filesystem::path& directory) override;
  Status rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Status remove_all(const std::filesystem::path& path) override;
  Status sync_directory(const std::filesystem::path& directory) override;
  Result<std::uint64_t> free_bytes(const std::filesystem::path& path) override;

  class State;  // the plan and the log, shared with the open files

 private:
  FileSystem& disk_;
  std::shared_ptr<State> state_;
};

}  // namespace moeflux
