#pragma once
// Large reads, many at a time.
//
// One read after another leaves a drive idle between them, and one thread copies from the page cache, and clears fresh memory,
// at the speed of one core. Here some threads read parts of a file side by side. Reads go through the page cache: who starts a
// program twice reads it from there.
//
// 3 GB of a drive that gives 2.3 GB/s with direct reads, on 2 virtual cores, medians of three: 0.8 GB/s by one thread, 1.8 by
// four and 2.1 by sixteen; from the page cache 11 by two and more.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

struct ParallelReadOptions {
  std::size_t part_bytes = std::size_t{4} << 20;  // at least 1
  unsigned threads = 16;                          // the calling one among them, at least 1
};

// ReadFile::read_exactly, with several reads at a time. An error is that of the part which is the first in the file. Where the
// system refuses to start threads there are fewer.
Status read_in_parallel(const ReadFile& file, std::uint64_t offset, std::span<std::byte> out,
                        const ParallelReadOptions& options = {});

}  // namespace moeflux
