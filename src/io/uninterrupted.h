#pragma once
// System calls that signals do not break off. Any thread.

#include <cerrno>

namespace moeflux {

// Repeats a system call for as long as a signal interrupts it.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace moeflux
