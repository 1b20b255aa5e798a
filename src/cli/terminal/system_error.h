#pragma once
// Errors of the operating system for this folder, and a descriptor that closes itself. Pure; any thread.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include <string>
#include <system_error>
#include <utility>

#include "base/result.h"

namespace moeflux::cli {

// "reading the terminal: Input/output error"
inline Error system_error(std::string activity, int error_number) {
  ErrorCode code = ErrorCode::io_failed;
  if (error_number == ENOENT) code = ErrorCode::not_found;
  if (error_number == ENOSPC || error_number == EDQUOT) code = ErrorCode::no_space;
  return Error{code, fmt::format("{}: {}", activity, std::generic_category().message(error_number))};
}

class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&&) = delete;
  ~OwnedFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace moeflux::cli
