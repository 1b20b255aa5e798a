#include "state/kv_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "base/allocation_counter.h"
#include "base/sizes.h"

namespace moeflux {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

constexpr std::size_t kSizes[] = {256 * 1024, 64, 1, 100'000, 3 * 1024 * 1024};

std::byte* acquired(KvPool& pool, std::size_t size) {
  Result<std::byte*> block = pool.acquire(size);
  EXPECT_TRUE(block) << block.error().message();
  return block ? *block : nullptr;
}

std::vector<std::byte*> acquired(KvPool& pool, std::size_t size, std::size_t count) {
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.push_back(acquired(pool, size));
  return blocks;
}

TEST(KvPool, BlocksAreAlignedAndApart) {
  KvPool pool(KvPool::kNoBudget);
  struct Taken {
    std::byte* block;
    std::size_t size;
    int mark;
  };
  std::vector<Taken> taken;
  for (int round = 0; round < 5; ++round)
    for (const std::size_t size : kSizes) {
      taken.push_back({acquired(pool, size), size, static_cast<int>(taken.size())});
      std::memset(taken.back().block, taken.back().mark, size);
    }
  for (const Taken& one : taken) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one.block) % 64, 0u);
    const auto is_marked = [&](std::byte byte) { return byte == static_cast<std::byte>(one.mark); };
    EXPECT_TRUE(std::all_of(one.block, one.block + one.size, is_marked)) << one.mark;
  }
}

TEST(KvPool, CountsWholeCacheLines) {
  KvPool pool(KvPool::kNoBudget);
  EXPECT_EQ(pool.used_bytes(), 0u);
  std::byte* const block = acquired(pool, 65);
  EXPECT_EQ(pool.used_bytes(), 128u);
  pool.release(block, 65);
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(KvPool, RefusesWhatItsBudgetHasNoRoomForAndSaysBothNumbers) {
  constexpr std::size_t kBlock = 250'048;
  KvPool pool(1'100'000);
  EXPECT_EQ(pool.budget_bytes(), 1'100'000u);
  const std::vector<std::byte*> blocks = acquired(pool, kBlock, 4);
  for (int again = 0; again < 3; ++again) {
    const Result<std::byte*> refused = pool.acquire(kBlock);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
    EXPECT_THAT(refused.error().message(),
                AllOf(HasSubstr(human_bytes(4 * kBlock)), HasSubstr(human_bytes(1'100'000))));
    EXPECT_EQ(pool.used_bytes(), 4 * kBlock);
  }
  pool.release(blocks[2], kBlock);
  EXPECT_EQ(acquired(pool, kBlock), blocks[2]);
}

TEST(KvPool, SmallBlocksStillFitWhereALargeOneDoesNot) {
  KvPool pool(1000);
  acquired(pool, 512);
  EXPECT_FALSE(pool.acquire(512));
  acquired(pool, 448);
  EXPECT_FALSE(pool.acquire(1));
  EXPECT_EQ(pool.used_bytes(), 960u);
}

TEST(KvPool, WithABudgetOfNothingRefusesEverything) {
  KvPool pool(0);
  EXPECT_FALSE(pool.acquire(1));
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(KvPool, UsesAgainWhatWasGivenBack) {
  KvPool pool(KvPool::kNoBudget);
  for (const std::size_t size : kSizes) {
    const std::vector<std::byte*> first = acquired(pool, size, 20);
    for (std::byte* const block : first) pool.release(block, size);
    EXPECT_EQ(pool.used_bytes(), 0u);
    // A slab may have more blocks than were taken; what was given back last comes first.
    const std::vector<std::byte*> second = acquired(pool, size, 20);
    EXPECT_THAT(second, UnorderedElementsAreArray(first)) << size;
    for (std::byte* const block : second) pool.release(block, size);
  }
}

TEST(KvPool, KeepsSizesApart) {
  KvPool pool(KvPool::kNoBudget);
  std::byte* const small = acquired(pool, 4096);
  pool.release(small, 4096);
  EXPECT_NE(acquired(pool, 8192), small);
  EXPECT_EQ(acquired(pool, 4096), small);
}

TEST(KvPool, NothingMovesWhenItGrows) {
  KvPool pool(KvPool::kNoBudget);
  constexpr std::size_t kBlock = 3 * 1024 * 1024;  // two a slab
  std::byte* const first = acquired(pool, kBlock);
  std::memset(first, 7, kBlock);
  for (std::byte* const block : acquired(pool, kBlock, 9)) std::memset(block, 9, kBlock);
  EXPECT_TRUE(std::all_of(first, first + kBlock, [](std::byte byte) { return byte == std::byte{7}; }));
}

TEST(KvPool, AllocatesNothingOnTheHeap) {
  KvPool pool(KvPool::kNoBudget);
  const auto take_and_give_back = [&] {
    for (const std::size_t size : kSizes) {
      std::byte* const first = *pool.acquire(size);
      std::byte* const second = *pool.acquire(size);
      pool.release(first, size);
      pool.release(second, size);
    }
  };
  take_and_give_back();
  const AllocationCounter counter;
  for (int round = 0; round < 100; ++round) take_and_give_back();
  EXPECT_EQ(counter.allocations(), 0u);
}

TEST(KvPool, GrowsWithoutTheHeap) {
  KvPool pool(KvPool::kNoBudget);
  const AllocationCounter counter;
  for (int block = 0; block < 50; ++block) ASSERT_TRUE(pool.acquire(5 * kMiB));  // one a slab
  EXPECT_EQ(counter.allocations(), 0u);
}

TEST(KvPool, ServesThreadsAtOnce) {
  constexpr std::size_t kBlock = 4096;
  KvPool pool(16 * kBlock);
  const auto use = [&](int mark) {
    for (int round = 0; round < 2000; ++round) {
      std::byte* const block = *pool.acquire(kBlock);
      std::memset(block, mark, kBlock);
      ASSERT_EQ(block[kBlock - 1], static_cast<std::byte>(mark));
      pool.release(block, kBlock);
    }
  };
  std::thread other(use, 1);
  use(2);
  other.join();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

}  // namespace
}  // namespace moeflux
