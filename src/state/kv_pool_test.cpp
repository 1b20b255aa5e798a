#include "state/kv_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

KvBlockRef acquired(KvPool& pool, std::size_t size) {
  Result<KvBlockRef> block = pool.acquire(size);
  EXPECT_TRUE(block) << block.error().message();
  return block ? *std::move(block) : KvBlockRef();
}

std::vector<KvBlockRef> acquired(KvPool& pool, std::size_t size, std::size_t count) {
  std::vector<KvBlockRef> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.push_back(acquired(pool, size));
  return blocks;
}

std::vector<float*> places_of(const std::vector<KvBlockRef>& blocks) {
  std::vector<float*> places;
  for (const KvBlockRef& block : blocks) places.push_back(block.data());
  return places;
}

bool is_all(const KvBlockRef& block, std::size_t size, int mark) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(block.data());
  return std::all_of(bytes, bytes + size,
                     [&](std::byte byte) { return byte == static_cast<std::byte>(mark); });
}

TEST(KvPool, BlocksAreAlignedAndDoNotOverlap) {
  KvPool pool(KvPool::kNoBudget);
  struct Taken {
    KvBlockRef block;
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

TEST(KvPool, CountsWholeCacheLinesAndHeaders) {
  KvPool pool(KvPool::kNoBudget);
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(KvPool::block_bytes(65), KvPool::block_bytes(128));
  EXPECT_EQ(KvPool::block_bytes(64) + 64, KvPool::block_bytes(65));
  std::uint64_t used = 0;
  std::vector<KvBlockRef> blocks;
  for (const std::size_t size : kSizes) {
    EXPECT_GE(KvPool::block_bytes(size), size);
    EXPECT_LE(KvPool::block_bytes(size), size + 128);
    blocks.push_back(acquired(pool, size));
    used += KvPool::block_bytes(size);
    EXPECT_EQ(pool.used_bytes(), used);
  }
  blocks.clear();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(KvPool, RefusesABlockBeyondItsBudgetAndStatesTheSizes) {
  constexpr std::size_t kBlock = 250'048;
  KvPool pool(1'100'000);
  EXPECT_EQ(pool.budget_bytes(), 1'100'000u);
  std::vector<KvBlockRef> blocks = acquired(pool, kBlock, 4);
  const std::uint64_t used = 4 * KvPool::block_bytes(kBlock);
  for (int again = 0; again < 3; ++again) {
    const Result<KvBlockRef> refused = pool.acquire(kBlock);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
    EXPECT_THAT(refused,
                States(human_bytes(used), human_bytes(1'100'000), human_bytes(KvPool::block_bytes(kBlock))));
    EXPECT_EQ(pool.used_bytes(), used);
  }
  float* const place = blocks[2].data();
  blocks[2] = {};
  EXPECT_EQ(acquired(pool, kBlock).data(), place);
}

TEST(KvPool, UsesABudgetToItsLastByte) {
  for (const std::uint64_t missing : {0u, 1u}) {
    KvPool pool(2 * KvPool::block_bytes(4096) - missing);
    const KvBlockRef first = acquired(pool, 4096);
    EXPECT_EQ(pool.acquire(4096).has_value(), missing == 0);
  }
}

TEST(KvPool, SmallBlocksFitWhereALargeOneDoesNot) {
  KvPool pool(KvPool::block_bytes(512) + KvPool::block_bytes(448));
  const KvBlockRef large = acquired(pool, 512);
  EXPECT_FALSE(pool.acquire(512));
  const KvBlockRef small = acquired(pool, 448);
  EXPECT_FALSE(pool.acquire(1));
  EXPECT_EQ(pool.used_bytes(), pool.budget_bytes());
}

TEST(KvPool, WithABudgetOfZeroRefusesEverything) {
  KvPool pool(0);
  EXPECT_FALSE(pool.acquire(1));
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(KvPool, ReusesReturnedBlocks) {
  KvPool pool(KvPool::kNoBudget);
  for (const std::size_t size : kSizes) {
    std::vector<KvBlockRef> blocks = acquired(pool, size, 20);
    for (const KvBlockRef& block : blocks) block.set_filled(200);
    const std::vector<float*> first = places_of(blocks);
    blocks.clear();
    EXPECT_EQ(pool.used_bytes(), 0u);
    // A slab may have more blocks than were acquired. The block returned last is acquired first.
    blocks = acquired(pool, size, 20);
    EXPECT_THAT(places_of(blocks), UnorderedElementsAreArray(first)) << size;
    for (const KvBlockRef& block : blocks) EXPECT_EQ(block.filled(), 0u) << "rows of the previous owner";
  }
}

TEST(KvPool, KeepsSizesApart) {
  KvPool pool(KvPool::kNoBudget);
  float* const small = acquired(pool, 4096).data();
  EXPECT_NE(acquired(pool, 8192).data(), small);
  EXPECT_EQ(acquired(pool, 4096).data(), small);
}

TEST(KvPool, NothingMovesWhenItGrows) {
  KvPool pool(KvPool::kNoBudget);
  constexpr std::size_t kBlock = 3 * 1024 * 1024;  // two per slab
  const KvBlockRef first = acquired(pool, kBlock);
  float* const place = first.data();
  std::memset(place, 7, kBlock);
  const std::vector<KvBlockRef> others = acquired(pool, kBlock, 9);
  for (const KvBlockRef& block : others) std::memset(block.data(), 9, kBlock);
  EXPECT_EQ(first.data(), place);
  EXPECT_TRUE(is_all(first, kBlock, 7));
}

TEST(KvPool, AllocatesNothingOnTheHeap) {
  KvPool pool(KvPool::kNoBudget);
  const auto take_share_and_give_back = [&] {
    for (const std::size_t size : kSizes) {
      const KvBlockRef first = *pool.acquire(size), second = *pool.acquire(size);
      KvBlockRef shared = first;
      shared = second;
    }
  };
  take_share_and_give_back();
  const AllocationCounter counter;
  for (int round = 0; round < 100; ++round) take_share_and_give_back();
  EXPECT_EQ(counter.allocations(), 0u);
}

TEST(KvPool, GrowsWithoutTheHeap) {
  KvPool pool(KvPool::kNoBudget);
  std::vector<KvBlockRef> blocks(50);
  const AllocationCounter counter;
  for (KvBlockRef& block : blocks) block = *pool.acquire(5 * kMiB);  // one per slab
  EXPECT_EQ(counter.allocations(), 0u);
}

TEST(KvPool, ServesThreadsConcurrently) {
  constexpr std::size_t kBlock = 4096;
  KvPool pool(16 * KvPool::block_bytes(kBlock));
  const auto use = [&](int mark) {
    for (int round = 0; round < 2000; ++round) {
      const KvBlockRef block = *pool.acquire(kBlock);
      std::memset(block.data(), mark, kBlock);
      ASSERT_TRUE(is_all(block, kBlock, mark));
    }
  };
  std::thread other(use, 1);
  use(2);
  other.join();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(KvPool, CountsCopiedBytes) {
  KvPool pool(KvPool::kNoBudget);
  EXPECT_EQ(pool.copied_bytes(), 0u);
  pool.count_copied(12);
  pool.count_copied(30);
  EXPECT_EQ(pool.copied_bytes(), 42u);
}

TEST(KvPoolContract, APoolOutlivesItsBlocks) {
  EXPECT_CONTRACT(
      {
        KvBlockRef block;
        KvPool pool(KvPool::kNoBudget);
        block = acquired(pool, 64);
      },
      "a pool outlives its blocks");
}

TEST(KvBlockRef, IsEmptyByDefaultAndAfterBeingMovedFrom) {
  KvPool pool(KvPool::kNoBudget);
  KvBlockRef block;
  EXPECT_FALSE(block);
  EXPECT_EQ(block, KvBlockRef(block));  // an empty reference can be copied
  block = acquired(pool, 64);
  ASSERT_TRUE(block);
  float* const place = block.data();
  const KvBlockRef moved = std::move(block);
  EXPECT_FALSE(block);  // NOLINT(bugprone-use-after-move): under test
  EXPECT_EQ(moved.data(), place);
  EXPECT_FALSE(moved.is_shared());
}

TEST(KvBlockRef, ACopyIsAShareInTheSameBlock) {
  KvPool pool(KvPool::kNoBudget);
  const KvBlockRef block = acquired(pool, 64), other = acquired(pool, 64);
  const KvBlockRef share = block;
  EXPECT_EQ(share, block);
  EXPECT_NE(share, other);
  EXPECT_EQ(share.data(), block.data());
  EXPECT_TRUE(share.is_shared());
  EXPECT_TRUE(block.is_shared());
  EXPECT_FALSE(other.is_shared());
  EXPECT_EQ(pool.used_bytes(), 2 * KvPool::block_bytes(64));  // a share takes no memory
}

TEST(KvBlockRef, TheLastShareReturnsTheBlock) {
  KvPool pool(KvPool::kNoBudget);
  KvBlockRef first = acquired(pool, 64);
  KvBlockRef second = first, third = second;
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

TEST(KvBlockRef, AssignmentReturnsTheOldBlock) {
  KvPool pool(KvPool::kNoBudget);
  KvBlockRef block = acquired(pool, 64);
  block = acquired(pool, 128);
  EXPECT_EQ(pool.used_bytes(), KvPool::block_bytes(128));
  const KvBlockRef& itself = block;
  block = itself;
  EXPECT_FALSE(block.is_shared());
  EXPECT_EQ(pool.used_bytes(), KvPool::block_bytes(128));
}

TEST(KvBlockRef, EveryShareSeesHowManyRowsAreClaimed) {
  KvPool pool(KvPool::kNoBudget);
  const KvBlockRef block = acquired(pool, 64), share = block;
  block.set_filled(17);
  EXPECT_EQ(share.filled(), 17u);
  share.set_filled(kKvBlockPositions);
  EXPECT_EQ(block.filled(), kKvBlockPositions);
}

// The last share, on any thread, returns the block after the other threads have read it. The next owner
// writes to it, so ThreadSanitizer would report a read that has not ended.
TEST(KvBlockRef, MayBeSharedByThreads) {
  constexpr std::size_t kBlock = 4096;
  constexpr int kThreads = 4;
  KvPool pool(2 * KvPool::block_bytes(kBlock));
  for (int round = 0; round < 200; ++round) {
    KvBlockRef block = acquired(pool, kBlock);
    std::memset(block.data(), round, kBlock);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([share = block, round]() mutable {
        for (int again = 0; again < 20; ++again) {
          const KvBlockRef copy = share;
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
