#include "io/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>

#include "io/system_error.h"

namespace moeflux {

Result<FileLock> FileLock::acquire(const std::filesystem::path& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file) return system_error(errno, fmt::format("opening the lock '{}'", path.native()));
  while (::flock(file.get(), LOCK_EX) != 0)
    if (errno != EINTR) return system_error(errno, fmt::format("locking '{}'", path.native()));
  return FileLock(std::move(file));
}

}  // namespace moeflux
