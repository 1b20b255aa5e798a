#pragma once
// What the tests of CpuOps share: operations with threads and memory of their own, and grids as their views. Test code only.

#include "base/sizes.h"
#include "kernels/cpu_ops.h"
#include "kernels/test_grid.h"

namespace moeflux::test {

inline const KernelTable& fastest() { return **select_kernels(); }

// Operations with threads and memory of their own.
struct Processor {
  ThreadPool pool;
  CpuOps ops;
  explicit Processor(unsigned threads, const KernelTable& kernels = fastest(),
                     Precision precision = Precision::exact)
      : pool(threads), ops(pool, kernels, *Workspace::create(64 * kMiB), precision) {}
};

inline Rows rows_of(Grid& grid) {
  return {grid.data(), static_cast<std::uint32_t>(grid.rows()), static_cast<std::uint32_t>(grid.cols()),
          grid.stride()};
}
inline Heads heads_of(Grid& grid, std::uint32_t heads) {
  return as_heads(rows_of(grid), heads, static_cast<std::uint32_t>(grid.cols()) / heads);
}

}  // namespace moeflux::test
