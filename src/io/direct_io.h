#pragma once
// What the kernel requires of offsets and of O_DIRECT. Constants: any thread.

#include <cstddef>
#include <cstdint>
#include <limits>

namespace moeflux {

// Offset, length and memory of a read or write with O_DIRECT are multiples of this.
inline constexpr std::size_t kDirectAlignment = 4096;

// A short direct read ends at a multiple of this, and can only be continued there.
inline constexpr std::uint64_t kSectorBytes = 512;

// No file reaches further, and system calls give larger offsets other meanings.
inline constexpr std::uint64_t kLargestFileOffset = std::numeric_limits<std::int64_t>::max();

}  // namespace moeflux
