#pragma once
// How fast these threads multiply bytes in registers: the limit that prompts in `fast` are compared with.
//
// A prompt multiplies every weight that it touches with every token, from caches if all goes well, so products divided
// by this rate are the least time that it can take.

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

namespace moeflux {

// Products (multiplied and added) a second of all threads of the pool together, the median of `repeats` times some
// milliseconds. `repeats` of 0 is invalid_argument. One thread at a time, as the pool.
Result<double> measure_products_per_second(ThreadPool& pool, const KernelTable& kernels, unsigned repeats);

}  // namespace moeflux
