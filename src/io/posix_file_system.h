#pragma once
// The real FileSystem: the files of this machine, through POSIX calls.
//
// Interrupted system calls are retried, and append() continues until everything is written. New files have
// mode 0644 and new directories 0755, before the umask. Errors name the operation, the path, the offset and
// the cause; io/system_error.h maps causes to codes. Stateless: thread-safe, and its files may outlive it.

#include "io/file_system.h"

namespace moeflux {

class PosixFileSystem final : public FileSystem {
 public:
  // A path that is not a regular file is `unsupported`.
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
