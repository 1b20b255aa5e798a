#include "state/block_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/sizes.h"
#include "base/testing/allocation_counter.h"
#include "base/testing/expect_contract.h"
#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;
using testing::UnorderedElementsAreArray;

constexpr std::size_t kSizes[] = {256 * 1024, 64, 1, 100'000, 3 * 1024 * 1024};

BlockRef acquired(BlockPool& pool, std::size_t size) {
  Result<BlockRef> block = pool.acquire(size);
  EXPECT_TRUE(block) << block.error().message();
  return block ? *std::move(block) : BlockRef();
}

std::vector<BlockRef> acquired(BlockPool& pool, std::size_t size, std::size_t count) {
  std::vector<BlockRef> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.push_back(acquired(pool, size));
  return blocks;
}

std::vector<float*> places_of(const std::vector<BlockRef>& blocks) {
  std::vector<float*> places;
  for (const BlockRef& block : blocks) places.push_back(block.data());
  return places;
}

bool is_all(const BlockRef& block, std::size_t size, int mark) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(block.data());
  return std::all_of(bytes, bytes + size,
                     [&](std::byte byte) { return byte == static_cast<std::byte>(mark); });
}

TEST(BlockPool, BlocksAreAlignedAndDoNotOverlap) {
  BlockPool pool(BlockPool::kNoBudget);
  struct Taken {
    BlockRef block;
    std::size_t size;
    int mark;
  };
  std::vector<Taken> taken;
  for (int round = 0; round < 5; ++round)
    for (const std::size_t size : kSizes) {
      taken.push_back({acquired(pool, size), size, static_cast<int>(taken.size())});
      std::memset(taken.back().block.data(), taken.back().mark, size);
    }
  for (const Taken& one : taken) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one.block.data()) % 64, 0u);
    EXPECT_TRUE(is_all(one.block, one.size, one.mark)) << one.mark;
    EXPECT_EQ(one.block.filled(), 0u);
    EXPECT_FALSE(one.block.is_shared());
  }
}

TEST(BlockPool, CountsWholeCacheLines) {
  BlockPool pool(BlockPool::kNoBudget);
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(BlockPool::block_bytes(65), BlockPool::block_bytes(128));
  EXPECT_EQ(BlockPool::block_bytes(64) + 64, BlockPool::block_bytes(65));
  std::uint64_t used = 0;
  std::vector<BlockRef> blocks;
  for (const std::size_t size : kSizes) {
    EXPECT_GE(BlockPool::block_bytes(size), size);
    EXPECT_LT(BlockPool::block_bytes(size), size + 64);
    blocks.push_back(acquired(pool, size));
    used += BlockPool::block_bytes(size);
    EXPECT_EQ(pool.used_bytes(), used);
  }
  blocks.clear();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(BlockPool, ItsUsageIsReadWholeWhileOtherThreadsAcquireAndReturnBlocks) {
  BlockPool pool(64 * kMiB);
  std::atomic<bool> is_over = false, has_begun = false;
  std::uint64_t wrong = 0;
  std::thread reader([&] {
    while (!is_over) {
      const PoolUsage usage = pool.usage();
      wrong += usage.used_bytes > usage.slab_bytes || usage.slab_bytes > usage.budget_bytes;
      wrong += usage.used_bytes % 1024 != 0 || usage.budget_bytes != 64 * kMiB;
      has_begun = true;
    }
  });
  while (!has_begun) std::this_thread::yield();
  for (int round = 0; round < 200; ++round) {
    std::vector<BlockRef> blocks = acquired(pool, 1024, 300);
    for (BlockRef& block : acquired(pool, 3 * 1024 * 1024, 3)) blocks.push_back(block);
  }
  is_over = true;
  reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(pool.usage().used_bytes, 0u);
}

TEST(BlockPool, RefusesABlockBeyondItsBudgetAndStatesTheSizes) {
  constexpr std::size_t kBlock = 250'048;
  BlockPool pool(1'100'000);
  EXPECT_EQ(pool.budget_bytes(), 1'100'000u);
  std::vector<BlockRef> blocks = acquired(pool, kBlock, 4);
  const std::uint64_t used = 4 * BlockPool::block_bytes(kBlock);
  for (int again = 0; again < 3; ++again) {
    const Result<BlockRef> refused = pool.acquire(kBlock);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
    EXPECT_THAT(refused, States(human_bytes(used), human_bytes(1'100'000),
                                human_bytes(BlockPool::block_bytes(kBlock))));
    EXPECT_EQ(pool.used_bytes(), used);
  }
  float* const place = blocks[2].data();
  blocks[2] = {};
  EXPECT_EQ(acquired(pool, kBlock).data(), place);
}

TEST(BlockPool, UsesABudgetToItsLastByte) {
  for (const std::uint64_t missing : {0u, 1u}) {
    BlockPool pool(2 * BlockPool::block_bytes(4096) - missing);
    const BlockRef first = acquired(pool, 4096);
    EXPECT_EQ(pool.acquire(4096).has_value(), missing == 0);
  }
}

TEST(BlockPool, SmallBlocksFitWhereALargeOneDoesNot) {
  BlockPool pool(BlockPool::block_bytes(512) + BlockPool::block_bytes(448));
  const BlockRef large = acquired(pool, 512);
  EXPECT_FALSE(pool.acquire(512));
  const BlockRef small = acquired(pool, 448);
  EXPECT_FALSE(pool.acquire(1));
  EXPECT_EQ(pool.used_bytes(), pool.budget_bytes());
}

TEST(BlockPool, WithABudgetOfZeroRefusesEverything) {
  BlockPool pool(0);
  EXPECT_FALSE(pool.acquire(1));
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(BlockPool, ReusesReturnedBlocks) {
  BlockPool pool(BlockPool::kNoBudget);
  for (const std::size_t size : {256u * 1024, 64u, 1u, 100'000u}) {  // 20 fit into a slab
    std::vector<BlockRef> blocks = acquired(pool, size, 20);
    for (const BlockRef& block : blocks) block.set_filled(200);
    const std::vector<float*> first = places_of(blocks);
    blocks.clear();
    EXPECT_EQ(pool.used_bytes(), 0u);
    // A slab may have more blocks than were acquired. The block returned last is acquired first.
    blocks = acquired(pool, size, 20);
    EXPECT_THAT(places_of(blocks), UnorderedElementsAreArray(first)) << size;
    for (const BlockRef& block : blocks) EXPECT_EQ(block.filled(), 0u) << "rows of the previous owner";
  }
}

TEST(BlockPool, KeepsSizesApart) {
  BlockPool pool(BlockPool::kNoBudget);
  float* const small = acquired(pool, 4096).data();
  EXPECT_NE(acquired(pool, 8192).data(), small);
  EXPECT_EQ(acquired(pool, 4096).data(), small);
}

TEST(BlockPool, NothingMovesWhenItGrows) {
  BlockPool pool(BlockPool::kNoBudget);
  constexpr std::size_t kBlock = 3 * 1024 * 1024;  // two per slab
  const BlockRef first = acquired(pool, kBlock);
  float* const place = first.data();
  std::memset(place, 7, kBlock);
  const std::vector<BlockRef> others = acquired(pool, kBlock, 9);
  for (const BlockRef& block : others) std::memset(block.data(), 9, kBlock);
  EXPECT_EQ(first.data(), place);
  EXPECT_TRUE(is_all(first, kBlock, 7));
}

TEST(BlockPool, AllocatesNothingOnTheHeap) {
  BlockPool pool(BlockPool::kNoBudget);
  const auto take_share_and_give_back = [&] {
    for (const std::size_t size : kSizes) {
      const BlockRef first = *pool.acquire(size), second = *pool.acquire(size);
      BlockRef shared = first;
      shared = second;
    }
  };
  take_share_and_give_back();
  const AllocationCounter counter;
  for (int round = 0; round < 100; ++round) take_share_and_give_back();
  EXPECT_EQ(counter.allocations(), 0u);
}

TEST(BlockPool, GrowsWithoutTheHeap) {
  BlockPool pool(BlockPool::kNoBudget);
  std::vector<BlockRef> blocks(50);
  const AllocationCounter counter;
  for (BlockRef& block : blocks) block = *pool.acquire(5 * kMiB);  // one per slab
  EXPECT_EQ(counter.allocations(), 0u);
}

TEST(BlockPool, ServesThreadsConcurrently) {
  constexpr std::size_t kBlock = 4096;
  BlockPool pool(16 * BlockPool::block_bytes(kBlock));
  const auto use = [&](int mark) {
    for (int round = 0; round < 2000; ++round) {
      const BlockRef block = *pool.acquire(kBlock);
      std::memset(block.data(), mark, kBlock);
      ASSERT_TRUE(is_all(block, kBlock, mark));
    }
  };
  std::thread other(use, 1);
  use(2);
  other.join();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

// ---- Slabs ----

constexpr std::size_t kLarge = 5 * kMiB;  // one per slab

TEST(BlockPool, ReturnsEmptySlabsToTheSystem) {
  BlockPool pool(BlockPool::kNoBudget);
  EXPECT_EQ(pool.slab_bytes(), 0u);
  std::vector<BlockRef> blocks = acquired(pool, kLarge, 10);
  EXPECT_EQ(pool.slab_bytes(), 10 * kLarge);
  blocks.resize(5);
  EXPECT_EQ(pool.slab_bytes(), 10 * kLarge) << "no more free blocks than used ones";
  blocks.resize(4);
  EXPECT_EQ(pool.slab_bytes(), 8 * kLarge);
  blocks.clear();
  EXPECT_EQ(pool.slab_bytes(), kLarge) << "the last one is kept";
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(BlockPool, KeepsASlabWithAUsedBlock) {
  BlockPool pool(BlockPool::kNoBudget);
  std::vector<BlockRef> blocks = acquired(pool, kMiB, 32);  // eight per slab
  const std::uint64_t all = pool.slab_bytes();
  std::vector<BlockRef> kept;
  for (std::size_t i = 0; i < blocks.size(); i += 8) kept.push_back(blocks[i]);
  for (const BlockRef& block : kept) std::memset(block.data(), 5, kMiB);
  blocks.clear();
  EXPECT_EQ(pool.slab_bytes(), all);
  for (const BlockRef& block : kept) EXPECT_TRUE(is_all(block, kMiB, 5));
  kept.clear();
  EXPECT_EQ(pool.slab_bytes(), all / 4);
}

TEST(BlockPool, TheBudgetLimitsSlabsAndTheirFreeBlocks) {
  BlockPool pool(kLarge + 3 * kMiB);
  BlockRef large = acquired(pool, kLarge);
  const std::vector<BlockRef> small = acquired(pool, kMiB, 3);
  EXPECT_EQ(pool.slab_bytes(), pool.budget_bytes());
  EXPECT_FALSE(pool.acquire(kMiB));
  large = {};
  EXPECT_EQ(pool.slab_bytes(), pool.budget_bytes()) << "one empty slab is kept";
  const BlockRef fourth = acquired(pool, kMiB);  // which takes the place of the empty slab
  EXPECT_EQ(pool.slab_bytes(), 4 * kMiB);
  EXPECT_FALSE(pool.acquire(kLarge));
}

TEST(BlockPool, ABudgetForItsBlocksHasRoomForThemInAnyOrder) {
  constexpr std::size_t kSmall = 4096, kBlock = 300'032;
  for (const std::size_t count : {3u, 50u, 500u}) {
    const std::uint64_t bytes = count * (BlockPool::block_bytes(kSmall) + BlockPool::block_bytes(kBlock));
    for (const bool small_first : {true, false}) {
      BlockPool pool(BlockPool::budget_for(bytes, 2));
      const std::vector<BlockRef> first = acquired(pool, small_first ? kSmall : kBlock, count);
      const std::vector<BlockRef> second = acquired(pool, small_first ? kBlock : kSmall, count);
      EXPECT_EQ(pool.used_bytes(), bytes);
    }
  }
}

TEST(BlockPool, ASmallerBudgetRefusesBlocksAndTakesNone) {
  BlockPool pool(BlockPool::kNoBudget);
  const BlockRef block = acquired(pool, kLarge);
  pool.set_budget_bytes(kLarge);
  EXPECT_FALSE(pool.acquire(kLarge));
  pool.set_budget_bytes(2 * kLarge);
  EXPECT_TRUE(pool.acquire(kLarge));
}

TEST(BlockPool, ZerosTakeNothingFromTheBudgetAndAreShared) {
  BlockPool pool(0);
  const float* const zeros = *pool.zeros(kMiB);
  EXPECT_EQ(*pool.zeros(kMiB), zeros);
  EXPECT_TRUE(std::all_of(zeros, zeros + kMiB / sizeof(float), [](float number) { return number == 0; }));
  EXPECT_EQ(pool.slab_bytes(), 0u);
}

TEST(BlockPool, CountsCopiedBytes) {
  BlockPool pool(BlockPool::kNoBudget);
  EXPECT_EQ(pool.copied_bytes(), 0u);
  pool.count_copied(12);
  pool.count_copied(30);
  EXPECT_EQ(pool.copied_bytes(), 42u);
}

TEST(BlockPoolContract, APoolOutlivesItsBlocks) {
  EXPECT_CONTRACT(
      {
        BlockRef block;
        BlockPool pool(BlockPool::kNoBudget);
        block = acquired(pool, 64);
      },
      "a pool outlives its blocks");
}

TEST(BlockRef, IsEmptyByDefaultAndAfterBeingMovedFrom) {
  BlockPool pool(BlockPool::kNoBudget);
  BlockRef block;
  EXPECT_FALSE(block);
  EXPECT_EQ(block, BlockRef(block));  // an empty reference can be copied
  block = acquired(pool, 64);
  ASSERT_TRUE(block);
  float* const place = block.data();
  const BlockRef moved = std::move(block);
  EXPECT_FALSE(block);  // NOLINT(bugprone-use-after-move): under test
  EXPECT_EQ(moved.data(), place);
  EXPECT_FALSE(moved.is_shared());
}

TEST(BlockRef, ACopyIsAShareInTheSameBlock) {
  BlockPool pool(BlockPool::kNoBudget);
  const BlockRef block = acquired(pool, 64), other = acquired(pool, 64);
  const BlockRef share = block;
  EXPECT_EQ(share, block);
  EXPECT_NE(share, other);
  EXPECT_EQ(share.data(), block.data());
  EXPECT_TRUE(share.is_shared());
  EXPECT_TRUE(block.is_shared());
  EXPECT_FALSE(other.is_shared());
  EXPECT_EQ(pool.used_bytes(), 2 * BlockPool::block_bytes(64));  // a share takes no memory
}

TEST(BlockRef, TheLastShareReturnsTheBlock) {
  BlockPool pool(BlockPool::kNoBudget);
  BlockRef first = acquired(pool, 64);
  BlockRef second = first, third = second;
  const std::uint64_t used = pool.used_bytes();
  first = {};
  EXPECT_EQ(pool.used_bytes(), used);
  EXPECT_TRUE(second.is_shared());
  third = {};
  EXPECT_EQ(pool.used_bytes(), used);
  EXPECT_FALSE(second.is_shared());
  second = {};
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(BlockRef, AssignmentReturnsTheOldBlock) {
  BlockPool pool(BlockPool::kNoBudget);
  BlockRef block = acquired(pool, 64);
  block = acquired(pool, 128);
  EXPECT_EQ(pool.used_bytes(), BlockPool::block_bytes(128));
  const BlockRef& itself = block;
  block = itself;
  EXPECT_FALSE(block.is_shared());
  EXPECT_EQ(pool.used_bytes(), BlockPool::block_bytes(128));
}

TEST(BlockRef, EveryShareSeesHowManyRowsAreClaimed) {
  BlockPool pool(BlockPool::kNoBudget);
  const BlockRef block = acquired(pool, 64), share = block;
  block.set_filled(17);
  EXPECT_EQ(share.filled(), 17u);
  share.set_filled(kKvBlockPositions);
  EXPECT_EQ(block.filled(), kKvBlockPositions);
}

// The last share, on any thread, returns the block after the other threads have read it. The next owner
// writes to it, so ThreadSanitizer would report a read that has not ended.
TEST(BlockRef, MayBeSharedByThreads) {
  constexpr std::size_t kBlock = 4096;
  constexpr int kThreads = 4;
  BlockPool pool(2 * BlockPool::block_bytes(kBlock));
  for (int round = 0; round < 200; ++round) {
    BlockRef block = acquired(pool, kBlock);
    std::memset(block.data(), round, kBlock);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([share = block, round]() mutable {
        for (int again = 0; again < 20; ++again) {
          const BlockRef copy = share;
          share = copy;
        }
        EXPECT_TRUE(is_all(share, kBlock, round));
      });
    block = {};
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    ASSERT_EQ(pool.used_bytes(), 0u);
  }
}

}  // namespace
}  // namespace moeflux
