#pragma once
// Shared by the tests of CpuOps: operations with their own threads and memory, and grids as views. Test code
// only.

#include "base/sizes.h"
#include "kernels/testing/grid.h"
#include "ops/cpu_ops.h"

namespace moeflux::test {

inline const KernelTable& fastest() { return **select_kernels(); }

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

// A matrix of `rows` rows per head, each of which begins a block of `all`.
inline HeadMatrices consecutive_heads(const TiledMatrix& all, std::uint32_t heads, std::uint32_t rows) {
  TiledMatrix first = all;
  first.rows = rows;
  return {first, heads, blocks_of(rows) * all.block_stride};
}

}  // namespace moeflux::test
