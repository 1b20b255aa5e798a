#pragma once
// A file descriptor with one owner.
//
// Open or empty; empty is -1, and only -1: 0 is a valid descriptor. The owner closes it. Errors of close()
// are ignored: code that needs the bytes on the disk calls fsync() first. One thread at a time.

#include <unistd.h>

#include <utility>

namespace moeflux {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    UniqueFd taken(std::move(other));  // first, so that self-assignment keeps the descriptor
    std::swap(fd_, taken.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ != -1) ::close(fd_);
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ != -1; }

 private:
  int fd_ = -1;
};

}  // namespace moeflux
