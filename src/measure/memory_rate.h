#pragma once
// How fast these threads read memory: the limit that decoding is compared with.
//
// A token reads the bytes of every weight that it touches once, so touched bytes divided by this rate is the
// least time that it can take. The probe reads as the engine does: neighbouring ranges, one a thread, from
// end to end, through huge pages where the system gives them; and asks ahead where the kernels do.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"

namespace moeflux {

// The sum, modulo 2^64, of `bytes` as little-endian 64-bit words; zeros complete the last. Every byte is read
// once, by all threads of the pool together. `bytes` begin at a multiple of 64.
std::uint64_t sum_of_words(ThreadPool& pool, std::span<const std::byte> bytes);

// Bytes a second at which the pool reads `bytes`, which nobody writes meanwhile: the median of `repeats` passes. Take
// several times more bytes than the caches hold: nothing here keeps a small buffer out of them. No bytes and
// `repeats` of 0 are invalid_argument; bytes that change between two passes are corrupt_data. One thread at a time, as
// the pool.
Result<double> measure_read_bytes_per_second(ThreadPool& pool, std::span<const std::byte> bytes,
                                             unsigned repeats);

// The same of `bytes` bytes of its own; no memory for them is out_of_memory.
Result<double> measure_read_bytes_per_second(ThreadPool& pool, std::uint64_t bytes, unsigned repeats);

}  // namespace moeflux
