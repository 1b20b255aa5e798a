// The primitives of the token loop allocate nothing.

#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "base/memory/workspace.h"
#include "base/testing/allocation_counter.h"
#include "base/thread_pool.h"

namespace moeflux {
namespace {

TEST(AllocationCounter, CountsEveryFormOfNew) {
  // Called as functions, because a compiler may remove a pair of new and delete expressions.
  const AllocationCounter counter;
  ::operator delete(::operator new(400));
  ::operator delete[](::operator new[](400));
  ::operator delete(::operator new(400, std::nothrow), std::nothrow);
  ::operator delete(::operator new(400, std::align_val_t(128)), std::align_val_t(128));
  EXPECT_EQ(counter.allocations(), 4);
  EXPECT_GE(counter.peak_bytes(), 400);
  EXPECT_LT(counter.peak_bytes(), 1000);
}

TEST(ThreadPool, RunAllocatesNothing) {
  ThreadPool pool(3);
  std::vector<std::uint64_t> sums(3);
  const AllocationCounter counter;
  for (int round = 0; round < 10; ++round) {
    pool.run([&](unsigned worker) { sums[worker] += worker; });
    pool.parallel_for(
        100, [&](std::uint64_t begin, std::uint64_t end, unsigned worker) { sums[worker] += end - begin; });
  }
  EXPECT_EQ(counter.allocations(), 0);
  EXPECT_EQ(sums[0] + sums[1] + sums[2], 10 * (100 + 3));
}

TEST(Workspace, TakeAllocatesNothing) {
  auto workspace = Workspace::create(4096);
  ASSERT_TRUE(workspace);
  const AllocationCounter counter;
  for (int pass = 0; pass < 3; ++pass) {
    Workspace::Scope scope(*workspace);
    workspace->take<float>(100)[99] = 1;
    workspace->take<double>(100)[99] = 1;
  }
  EXPECT_EQ(counter.allocations(), 0);
}

}  // namespace
}  // namespace moeflux
