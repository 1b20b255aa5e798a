#pragma once
// What rendering one template may take. Plain values.
//
// A template comes with a model that somebody made, and its data from whoever talks to the server: neither
// may hang the program or fill its memory. Every limit ends in an `unsupported` error that names it.

#include <cstddef>
#include <cstdint>

#include "base/sizes.h"

namespace moeflux::jinja {

struct Limits {
  std::uint64_t nodes = 1'000'000;        // evaluated expressions and statements, and steps inside filters
  std::size_t string_bytes = 16 * kMiB;   // the output, and any string on the way to it
  std::size_t memory_bytes = 64 * kMiB;   // of all values that are alive at once, the data included
  std::uint64_t work_bytes = 256 * kMiB;  // read or written inside operations: what nodes do not count
  std::uint32_t depth = 64;               // of nesting: of the source, and of calls of macros
  std::size_t source_bytes = kMiB;
};

}  // namespace moeflux::jinja
