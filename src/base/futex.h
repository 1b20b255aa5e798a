#pragma once
// Sleeping until an atomic word changes: the futex of Linux, without a mutex.
//
// A wake-up costs one system call, and the threads that wake up need no common lock: with a condition
// variable they take its mutex one after another. Thread-safe functions.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace moeflux {

// Sleeps while `word` is `value`, at most until `timeout` has passed if it is positive. May return early.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                       std::chrono::nanoseconds timeout = {}) {
  const timespec time{.tv_sec = static_cast<std::time_t>(timeout.count() / 1'000'000'000),
                      .tv_nsec = static_cast<long>(timeout.count() % 1'000'000'000)};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, timeout.count() > 0 ? &time : nullptr, nullptr, 0);
}

inline void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace moeflux
