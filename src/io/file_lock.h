#pragma once
// Mutual exclusion between processes: an advisory lock (flock) on a file that is used only for locking.
//
// Held from acquire() to destruction. The system releases the lock when the process ends, even if it crashes;
// the lock file stays. Threads of one process that acquire the same path exclude each other too. Movable.

#include <filesystem>

#include "base/result.h"
#include "io/unique_fd.h"

namespace moeflux {

class FileLock {
 public:
  // Blocks until the lock is free. Creates the file if needed, but not its directory.
  static Result<FileLock> acquire(const std::filesystem::path& path);

 private:
  explicit FileLock(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

}  // namespace moeflux
