#include "io/testing/faulty_file_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/thread_annotations.h"
#include "io/system_error.h"

namespace moeflux {

std::string_view name_of(FileOperation operation) {
  switch (operation) {
    case FileOperation::open_read: return "open_read";
    case FileOperation::size: return "size";
    case FileOperation::read: return "read";
    case FileOperation::create: return "create";
    case FileOperation::append: return "append";
    case FileOperation::sync: return "sync";
    case FileOperation::info: return "info";
    case FileOperation::list: return "list";
    case FileOperation::make_directory: return "make_directory";
    case FileOperation::rename: return "rename";
    case FileOperation::remove_all: return "remove_all";
    case FileOperation::sync_directory: return "sync_directory";
    case FileOperation::free_bytes: return "free_bytes";
  }
  return "unknown";
}

// Thread-safe. The lock is held for accesses to the plan and the log, never across I/O.
class FaultyFileSystem::State {
 public:
  void set_plan(FaultPlan plan) {
    MF_REQUIRE(plan.longest_read_bytes > 0,
               "longest_read_bytes is at least 1; reading 0 bytes means end of file");
    const Lock lock(mutex_);
    plan_ = std::move(plan);
    seen_by_fault_.assign(plan_.faults.size(), 0);
    operations_ = 0;
  }

  // Calls `action`, which may set record.bytes, unless the plan makes the operation fail. Logs the operation.
  template <class Action>
  auto perform(FileOperationRecord record, Action action) -> decltype(action(record)) {
    if (std::optional<Error> fault = begin(record)) {
      record.failed = true;
      end(std::move(record));
      return *std::move(fault);
    }
    auto result = action(record);
    record.failed = !result.has_value();
    end(std::move(record));
    return result;
  }

  std::size_t longest_read_bytes() const {
    const Lock lock(mutex_);
    return plan_.longest_read_bytes;
  }

  // The size of the file according to the plan; the largest number if the plan does not truncate it.
  std::uint64_t end_of(const std::filesystem::path& path) const {
    const Lock lock(mutex_);
    std::uint64_t end = std::numeric_limits<std::uint64_t>::max();
    for (const Truncation& truncation : plan_.truncations) {
      // The current operation has been counted already.
      if (truncation.path == path && operations_ > truncation.from_operation) {
        end = std::min(end, truncation.size_bytes);
      }
    }
    return end;
  }

  // Takes up to `wanted` bytes from the remaining disk space and returns how many it took.
  std::uint64_t take_disk_bytes(std::uint64_t wanted) {
    const Lock lock(mutex_);
    const std::uint64_t taken = std::min(wanted, plan_.disk_bytes);
    if (plan_.disk_bytes != std::numeric_limits<std::uint64_t>::max()) plan_.disk_bytes -= taken;
    return taken;
  }

  std::uint64_t disk_bytes() const {
    const Lock lock(mutex_);
    return plan_.disk_bytes;
  }

  std::vector<FileOperationRecord> log() const {
    const Lock lock(mutex_);
    return log_;
  }

  void clear_log() {
    const Lock lock(mutex_);
    log_.clear();
  }

 private:
  // Counts the operation. Returns its error if the plan makes it fail.
  std::optional<Error> begin(const FileOperationRecord& record) {
    const Lock lock(mutex_);
    ++operations_;
    std::optional<Error> error;
    for (std::size_t i = 0; i < plan_.faults.size(); ++i) {  // no early exit: every fault counts its matches
      const Fault& fault = plan_.faults[i];
      if (fault.operation && *fault.operation != record.operation) continue;
      if (!fault.file_name.empty() && record.path.filename() != fault.file_name) continue;
      const std::uint64_t seen = seen_by_fault_[i]++;
      const bool applies = seen == fault.index || (fault.and_all_later && seen > fault.index);
      if (applies && !error) error = injected_error(fault.error_number, record);
    }
    return error;
  }

  static Error injected_error(int error_number, const FileOperationRecord& record) {
    std::string activity =
        fmt::format("cannot complete {} of '{}'", name_of(record.operation), record.path.native());
    if (record.operation == FileOperation::read) activity += fmt::format(" at offset {}", record.offset);
    if (!record.target.empty()) activity += fmt::format(" to '{}'", record.target.native());
    return system_error(error_number, activity);
  }

  void end(FileOperationRecord record) {
    const Lock lock(mutex_);
    log_.push_back(std::move(record));
  }

  mutable Mutex mutex_;
  FaultPlan plan_ MF_GUARDED_BY(mutex_);
  // How many operations each fault of the plan has matched so far.
  std::vector<std::uint64_t> seen_by_fault_ MF_GUARDED_BY(mutex_);
  std::uint64_t operations_ MF_GUARDED_BY(mutex_) = 0;  // since the plan was set
  std::vector<FileOperationRecord> log_ MF_GUARDED_BY(mutex_);
};

namespace {

class FaultyReadFile final : public ReadFile {
 public:
  FaultyReadFile(std::unique_ptr<ReadFile> file, std::shared_ptr<FaultyFileSystem::State> state)
      : ReadFile(file->path()), file_(std::move(file)), state_(std::move(state)) {}

  Result<std::uint64_t> size() const override {
    return state_->perform({.operation = FileOperation::size, .path = path()},
                           [&](FileOperationRecord&) -> Result<std::uint64_t> {
                             MF_TRY(const std::uint64_t size_bytes, file_->size());
                             return std::min(size_bytes, state_->end_of(path()));
                           });
  }

  Result<std::size_t> read_some(std::uint64_t offset, std::span<std::byte> out) const override {
    return state_->perform({.operation = FileOperation::read, .path = path(), .offset = offset},
                           [&](FileOperationRecord& record) -> Result<std::size_t> {
                             const std::uint64_t end = state_->end_of(path());
                             if (offset >= end) return std::size_t{0};
                             std::size_t wanted = std::min(out.size(), state_->longest_read_bytes());
                             wanted = std::min<std::uint64_t>(wanted, end - offset);
                             MF_TRY(const std::size_t count, file_->read_some(offset, out.first(wanted)));
                             record.bytes = count;
                             return count;
                           });
  }

 private:
  std::unique_ptr<ReadFile> file_;
  std::shared_ptr<FaultyFileSystem::State> state_;
};

class FaultyWriteFile final : public WriteFile {
 public:
  FaultyWriteFile(std::unique_ptr<WriteFile> file, std::shared_ptr<FaultyFileSystem::State> state)
      : WriteFile(file->path()), file_(std::move(file)), state_(std::move(state)) {}

  Status append(std::span<const std::byte> bytes) override {
    return state_->perform(
        {.operation = FileOperation::append, .path = path()}, [&](FileOperationRecord& record) -> Status {
          const std::uint64_t fitting = state_->take_disk_bytes(bytes.size());
          MF_TRY_STATUS(file_->append(bytes.first(fitting)));
          record.bytes = fitting;
          if (fitting == bytes.size()) return {};
          return system_error(ENOSPC, fmt::format("cannot append to '{}': wrote {} of {} bytes",
                                                  path().native(), fitting, bytes.size()));
        });
  }

  Status sync() override {
    return state_->perform({.operation = FileOperation::sync, .path = path()},
                           [&](FileOperationRecord&) { return file_->sync(); });
  }

 private:
  std::unique_ptr<WriteFile> file_;
  std::shared_ptr<FaultyFileSystem::State> state_;
};

}  // namespace

FaultyFileSystem::FaultyFileSystem(FileSystem& disk) : disk_(disk), state_(std::make_shared<State>()) {}

void FaultyFileSystem::set_plan(FaultPlan plan) { state_->set_plan(std::move(plan)); }

std::vector<FileOperationRecord> FaultyFileSystem::log() const { return state_->log(); }

void FaultyFileSystem::clear_log() { state_->clear_log(); }

std::uint64_t FaultyFileSystem::count(FileOperation operation) const {
  std::uint64_t total = 0;
  for (const FileOperationRecord& record : log()) total += record.operation == operation ? 1 : 0;
  return total;
}

std::uint64_t FaultyFileSystem::bytes(FileOperation operation) const {
  std::uint64_t total = 0;
  for (const FileOperationRecord& record : log()) total += record.operation == operation ? record.bytes : 0;
  return total;
}

Result<std::unique_ptr<ReadFile>> FaultyFileSystem::open_read(const std::filesystem::path& path) {
  return state_->perform(
      {.operation = FileOperation::open_read, .path = path},
      [&](FileOperationRecord&) -> Result<std::unique_ptr<ReadFile>> {
        MF_TRY(std::unique_ptr<ReadFile> file, disk_.open_read(path));
        return std::unique_ptr<ReadFile>(std::make_unique<FaultyReadFile>(std::move(file), state_));
      });
}

Result<std::unique_ptr<WriteFile>> FaultyFileSystem::create(const std::filesystem::path& path) {
  return state_->perform(
      {.operation = FileOperation::create, .path = path},
      [&](FileOperationRecord&) -> Result<std::unique_ptr<WriteFile>> {
        MF_TRY(std::unique_ptr<WriteFile> file, disk_.create(path));
        return std::unique_ptr<WriteFile>(std::make_unique<FaultyWriteFile>(std::move(file), state_));
      });
}

Result<FileInfo> FaultyFileSystem::info(const std::filesystem::path& path) {
  return state_->perform({.operation = FileOperation::info, .path = path},
                         [&](FileOperationRecord&) -> Result<FileInfo> {
                           MF_TRY(FileInfo found, disk_.info(path));
                           found.size_bytes = std::min(found.size_bytes, state_->end_of(path));
                           return found;
                         });
}

Result<std::vector<std::string>> FaultyFileSystem::list(const std::filesystem::path& directory) {
  return state_->perform({.operation = FileOperation::list, .path = directory},
                         [&](FileOperationRecord&) { return disk_.list(directory); });
}

Status FaultyFileSystem::make_directory(const std::filesystem::path& directory) {
  return state_->perform({.operation = FileOperation::make_directory, .path = directory},
                         [&](FileOperationRecord&) { return disk_.make_directory(directory); });
}

Status FaultyFileSystem::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  return state_->perform({.operation = FileOperation::rename, .path = from, .target = to},
                         [&](FileOperationRecord&) { return disk_.rename(from, to); });
}

Status FaultyFileSystem::remove_all(const std::filesystem::path& path) {
  return state_->perform({.operation = FileOperation::remove_all, .path = path},
                         [&](FileOperationRecord&) { return disk_.remove_all(path); });
}

Status FaultyFileSystem::sync_directory(const std::filesystem::path& directory) {
  return state_->perform({.operation = FileOperation::sync_directory, .path = directory},
                         [&](FileOperationRecord&) { return disk_.sync_directory(directory); });
}

Result<std::uint64_t> FaultyFileSystem::free_bytes(const std::filesystem::path& path) {
  return state_->perform({.operation = FileOperation::free_bytes, .path = path},
                         [&](FileOperationRecord&) -> Result<std::uint64_t> {
                           MF_TRY(const std::uint64_t free, disk_.free_bytes(path));
                           return std::min(free, state_->disk_bytes());
                         });
}

}  // namespace moeflux
