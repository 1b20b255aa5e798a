#pragma once
// The limits of rendering one template. Plain values.
//
// Templates come with downloaded models and their data from users; neither may hang the program or exhaust
// its memory. Exceeding a limit is an `unsupported` error that names it.

#include <cstddef>
#include <cstdint>

#include "base/sizes.h"

namespace moeflux::jinja {

struct Limits {
  std::uint64_t nodes = 1'000'000;        // evaluated expressions and statements, and steps of filters
  std::size_t string_bytes = 16 * kMiB;   // of the output and of any intermediate string
  std::size_t memory_bytes = 64 * kMiB;   // of all live values, including the data
  std::uint64_t work_bytes = 256 * kMiB;  // read or written inside operations, which `nodes` does not count
  std::uint32_t depth = 64;               // nesting of the source, and of macro calls
  std::size_t source_bytes = kMiB;
};

}  // namespace moeflux::jinja
