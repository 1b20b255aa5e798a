#pragma once
// A disk that fails on demand, for the tests of every layer.
//
// FaultyFileSystem passes each operation on to another FileSystem, unless its FaultPlan has it fail, and
// keeps a log of all of them, so that a test can rehearse each failure and count work and its order:
//
//   PosixFileSystem disk;
//   FaultyFileSystem files(disk);
//   files.set_plan({.faults = {{.operation = FileOperation::read, .index = 2, .error_number = EIO}}});
//
// The wrapped FileSystem outlives it and its files; its files may outlive it. Thread-safe.

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

// One operation that fails instead of being done. The error has the code that the real file system gives
// to `error_number`.
struct Fault {
  std::optional<FileOperation> operation = {};  // nothing: of any kind
  std::string file_name = {};                   // the last name of its path (rename: the old); empty: any
  std::uint64_t index = 0;                      // counted from 0 among the operations that match both
  bool and_all_later = false;
  int error_number = EIO;
};

// A file that is shortened under its readers: from the given operation on, size(), info() and reads answer
// as if it ended at size_bytes.
struct Truncation {
  std::filesystem::path path;
  std::uint64_t size_bytes = 0;
  std::uint64_t from_operation = 0;  // counted from 0, of any kind and any path
};

// What goes wrong. Without faults, nothing does.
struct FaultPlan {
  std::vector<Fault> faults = {};
  std::vector<Truncation> truncations = {};
  std::size_t longest_read_bytes = std::numeric_limits<std::size_t>::max();  // short reads; at least 1
  // The bytes that can still be appended, to all files together. The append that exceeds them writes what
  // fits and fails with no_space. Removing files gives nothing back.
  std::uint64_t disk_bytes = std::numeric_limits<std::uint64_t>::max();
};

// One operation as it happened.
struct FileOperationRecord {
  FileOperation operation;
  std::filesystem::path path;         // rename: the old name
  std::filesystem::path target = {};  // rename: the new name
  std::uint64_t offset = 0;           // read: where
  std::uint64_t bytes = 0;            // read, append: how many were moved, also when it failed half-way
  bool failed = false;
};

class FaultyFileSystem final : public FileSystem {
 public:
  explicit FaultyFileSystem(FileSystem& disk);

  // What goes wrong from now on; counting starts anew. The log goes on.
  void set_plan(FaultPlan plan);

  // Every operation so far, in the order in which they ended.
  std::vector<FileOperationRecord> log() const;
  void clear_log();

  // Of the log: how many operations of a kind, failed ones too, and how many bytes they moved.
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
