#pragma once
// Measures how fast the threads of a pool multiply bytes in registers: the limit for prompts at precision
// `fast`.
//
// A prompt multiplies each weight that it uses with each token, ideally from caches, so its number of
// products divided by this rate is a lower bound on its time.

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

namespace moeflux {

// Multiply-add products per second of all threads of the pool: the median of `repeats` runs of a few
// milliseconds each. `repeats` of 0 is invalid_argument. One thread at a time, like the pool.
Result<double> measure_products_per_second(ThreadPool& pool, const KernelTable& kernels, unsigned repeats);

}  // namespace moeflux
