#pragma once
// Contracts: what a caller promised.
//
// MF_REQUIRE is always on and aborts with the promise as its text. It guards the borders between
// modules, once a call. Nothing that comes from a file, a prompt or a socket may reach one: input
// that can be wrong is a Result. A macro because clang 14 has no std::source_location.

namespace moeflux {

[[noreturn]] void contract_violated(const char* promise, const char* file, int line);

}  // namespace moeflux

#define MF_REQUIRE(kept, promise) \
  ((kept) ? void() : ::moeflux::contract_violated(promise, __FILE__, __LINE__))
