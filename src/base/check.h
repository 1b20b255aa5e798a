#pragma once
// Contracts: preconditions that the caller must keep.
//
// MF_REQUIRE is always on and aborts with the promise as its text. It guards the borders between modules,
// once per call. Values from a file, a prompt or a socket must be checked before they reach one: wrong input
// is an Error in a Result. A macro because clang 14 has no std::source_location. Thread-safe.

namespace moeflux {

[[noreturn]] void contract_violated(const char* promise, const char* file, int line);

}  // namespace moeflux

#define MF_REQUIRE(kept, promise) \
  ((kept) ? void() : ::moeflux::contract_violated(promise, __FILE__, __LINE__))
