#pragma once
// Numbers of bytes, as people write and read them.
//
// Two conventions on purpose. What a user types is memory, so K, M, G and T are powers of 1024; what we
// print about files and models follows the drives and model cards they are compared with, so KB, MB and
// GB are powers of 1000. size_argument() is the way back to the first: the text to put into "pass
// --expert-cache 6G". Pure functions: any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux {

inline constexpr std::uint64_t kKiB = std::uint64_t{1} << 10;
inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;

// A SIZE argument: "4096", "64K", "1.5G", "8MiB", "2tb". A fraction is rounded down to a whole byte and
// needs a unit. Anything else, a sign and spaces included, is invalid_argument.
Result<std::uint64_t> parse_size(std::string_view text);

// The shortest SIZE argument that parse_size reads as exactly `bytes`: "64K", "1536M", "4097".
std::string size_argument(std::uint64_t bytes);

// For reading, rounded to three or four digits: "512 B", "7.08 MB", "55.3 KB", "217.4 GB".
std::string human_bytes(std::uint64_t bytes);

// For counting: "7,077,888".
std::string with_thousands(std::uint64_t value);

}  // namespace moeflux
