#pragma once
// One process at a time: an advisory lock on a file that exists for nothing else.
//
// The system lets go of it when its holder ends, however that happens; the file stays. Movable; the threads of one
// process that acquire the same path exclude each other too.

#include <filesystem>

#include "base/result.h"
#include "io/unique_fd.h"

namespace moeflux {

class FileLock {
 public:
  // Waits for whoever holds it. Creates the file, in a directory that exists.
  static Result<FileLock> acquire(const std::filesystem::path& path);

 private:
  explicit FileLock(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

}  // namespace moeflux
