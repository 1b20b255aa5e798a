#pragma once
// Measures how fast the threads of a pool read memory: the limit for decoding.
//
// Decoding a token reads each weight that it uses once, so these bytes divided by this rate are a lower bound
// of the time per token. The probe reads as the engine does: one contiguous range per thread, front to back,
// in huge pages where the system grants them, with prefetch where the kernels use it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"

namespace moeflux {

// The sum, modulo 2^64, of `bytes` as little-endian 64-bit words; the last word is padded with zeros. The
// threads of the pool read every byte once. Requires: `bytes` is 64-byte aligned.
std::uint64_t sum_of_words(ThreadPool& pool, std::span<const std::byte> bytes);

// Bytes per second at which the pool reads `bytes`: the median of `repeats` passes. Requires: no thread
// writes `bytes` meanwhile. Pass several times more bytes than the caches hold: a small buffer stays in them.
// No bytes or `repeats` of 0 is invalid_argument; bytes that change between two passes are corrupt_data. One
// thread at a time, like the pool.
Result<double> measure_read_bytes_per_second(ThreadPool& pool, std::span<const std::byte> bytes,
                                             unsigned repeats);

// The same for a buffer of `bytes` bytes that the call allocates; out_of_memory if it cannot.
Result<double> measure_read_bytes_per_second(ThreadPool& pool, std::uint64_t bytes, unsigned repeats);

}  // namespace moeflux
