#pragma once
// Retries system calls that a signal interrupts. Thread-safe.

#include <cerrno>

namespace moeflux {

// Calls `call` again as long as it returns -1 with EINTR. Returns its last result, with errno as it left it.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace moeflux
