#pragma once
// Parses and formats numbers of bytes.
//
// There are two conventions. In arguments K, M, G and T are powers of 1024, because users type sizes of
// memory. In output KB, MB and GB are powers of 1000, because sizes of files and models are compared with
// drives and model cards. size_argument() formats a size as an argument, for messages like "pass
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

// Parses a SIZE argument: "4096", "64K", "1.5G", "8MiB", "2tb". A fraction needs a unit and is rounded down
// to a whole byte. Anything else, including signs and spaces, is invalid_argument.
Result<std::uint64_t> parse_size(std::string_view text);

// The shortest SIZE argument that parse_size() parses as exactly `bytes`: "64K", "1536M", "4097".
std::string size_argument(std::uint64_t bytes);

// Rounded to three or four digits: "512 B", "7.08 MB", "55.3 KB", "217.4 GB".
std::string human_bytes(std::uint64_t bytes);

// Exact, with thousands separators: "7,077,888".
std::string with_thousands(std::uint64_t value);

}  // namespace moeflux
