#pragma once
// The files of this machine, by the calls of POSIX.
//
// Stateless, so one object serves every thread and its files may outlive it. Calls that a signal interrupts
// are repeated, and an append goes on until all is written. New files are 0644 and new directories 0755,
// before the umask. Errors say what was tried, on which path, at which offset, and what the system answered;
// their codes are those of io/system_error.h.

#include "io/file_system.h"

namespace moeflux {

class PosixFileSystem final : public FileSystem {
 public:
  // Something that is not a regular file is `invalid_argument`.
  Result<std::unique_ptr<ReadFile>> open_read(const std::filesystem::path& path) override;
  Result<std::unique_ptr<WriteFile>> create(const std::filesystem::path& path) override;
  Result<FileInfo> info(const std::filesystem::path& path) override;
  Result<std::vector<std::string>> list(const std::filesystem::path& directory) override;
  Status make_directory(const std::filesystem::path& directory) override;
  Status rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Status remove_all(const std::filesystem::path& path) override;
  Status sync_directory(const std::filesystem::path& directory) override;
  Result<std::uint64_t> free_bytes(const std::filesystem::path& path) override;
};

}  // namespace moeflux
