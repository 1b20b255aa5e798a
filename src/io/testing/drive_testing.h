#pragma once
// Helpers for tests of drives: file contents without repeats, and collecting with a timeout. Test code only.

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "io/drive/drive.h"

namespace moeflux {

// The timeout for events that must happen: a test that waits this long has failed.
inline constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(60);

// Pseudo-random bytes, so that no two pages are equal.
inline std::string distinct_bytes(std::size_t size, std::uint64_t seed) {
  std::string bytes(size, '\0');
  std::uint64_t state = seed * 2 + 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

// The next `count` completions in order of arrival; fewer after a timeout, which fails the test.
inline std::vector<DriveCompletion> collect_all(Drive& drive, std::size_t count) {
  std::vector<DriveCompletion> all;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (all.size() < count && std::chrono::steady_clock::now() < deadline) {
    std::array<DriveCompletion, 8> some;
    const std::size_t wanted = std::min(some.size(), count - all.size());
    const std::size_t got = drive.collect(std::span(some).first(wanted), kPatience);
    all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(got));
  }
  EXPECT_EQ(all.size(), count) << "completions are missing";
  return all;
}

// Submits one read and returns its completion. Requires: no other read is in flight.
inline DriveCompletion read_one(Drive& drive, const DriveRead& read) {
  drive.submit(read);
  const std::vector<DriveCompletion> ended = collect_all(drive, 1);
  return ended.empty() ? DriveCompletion{.error_number = ETIMEDOUT} : ended.front();
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace moeflux
