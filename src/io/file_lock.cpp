#include "io/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>

#include "io/system_error.h"
#include "io/uninterrupted.h"

namespace moeflux {

Result<FileLock> FileLock::acquire(const std::filesystem::path& path) {
  UniqueFd file(uninterrupted([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); }));
  if (!file) return system_error(errno, fmt::format("cannot open the lock file '{}'", path.native()));
  if (uninterrupted([&] { return ::flock(file.get(), LOCK_EX); }) != 0)
    return system_error(errno, fmt::format("cannot lock '{}'", path.native()));
  return FileLock(std::move(file));
}

}  // namespace moeflux
