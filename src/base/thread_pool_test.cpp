#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

static_assert(split_range(10, 3, 0) == IndexRange{0, 4});
static_assert(split_range(10, 3, 1) == IndexRange{4, 7});
static_assert(split_range(10, 3, 2) == IndexRange{7, 10});
static_assert(split_range(2, 4, 3) == IndexRange{2, 2});
static_assert(split_range(0, 4, 1).size() == 0);

RC_GTEST_PROP(SplitRange, CoversEveryIndexOnceInNearlyEqualParts, (std::uint64_t bits)) {
  const std::uint64_t count = bits << *rc::gen::inRange(0, 64);
  const unsigned parts = *rc::gen::inRange(1u, 300u);
  std::uint64_t next = 0;
  for (unsigned part = 0; part < parts; ++part) {
    const IndexRange range = split_range(count, parts, part);
    RC_ASSERT(range.begin == next);
    RC_ASSERT(range.size() >= count / parts);
    RC_ASSERT(range.size() <= count / parts + 1);
    next = range.end;
  }
  RC_ASSERT(next == count);
}

TEST(SplitRange, DoesNotOverflowForTheLargestCount) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  constexpr unsigned kParts = std::numeric_limits<unsigned>::max();
  static_assert(split_range(kMax, kParts, kParts - 1).end == kMax);
}

class ThreadPoolOfEverySize : public testing::TestWithParam<unsigned> {
 protected:
  ThreadPool pool_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(, ThreadPoolOfEverySize, testing::Values(1u, 2u, 3u, 8u),
                         [](const auto& size) { return "Threads" + std::to_string(size.param); });

TEST_P(ThreadPoolOfEverySize, RunsTheJobOnceForEachThread) {
  ASSERT_EQ(pool_.threads(), GetParam());
  std::vector<int> calls(pool_.threads(), 0);
  for (int round = 1; round <= 200; ++round) {
    pool_.run([&](unsigned worker) { ++calls[worker]; });
    ASSERT_EQ(calls, std::vector<int>(pool_.threads(), round));
  }
}

TEST_P(ThreadPoolOfEverySize, NamesTheThreadThatRunsAPiece) {
  std::vector<std::thread::id> ids(pool_.threads());
  std::vector<std::atomic<int>> running(pool_.threads());
  ids[0] = std::this_thread::get_id();
  for (int round = 0; round < 50; ++round)
    pool_.run_pieces(40, [&](std::uint32_t, unsigned worker) {
      EXPECT_EQ(running[worker].fetch_add(1), 0) << "one call at a time";
      if (ids[worker] == std::thread::id()) ids[worker] = std::this_thread::get_id();
      EXPECT_EQ(ids[worker], std::this_thread::get_id());
      running[worker].fetch_sub(1);
    });
}

TEST_P(ThreadPoolOfEverySize, RunsEveryPieceOnce) {
  for (const std::uint32_t pieces : {0u, 1u, 2u, 7u, 8u, 9u, 1000u}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::atomic<int>> calls(pieces);
      pool_.run_pieces(pieces, [&](std::uint32_t piece, unsigned) { ++calls[piece]; });
      EXPECT_TRUE(std::ranges::all_of(calls, [](const auto& count) { return count == 1; })) << pieces;
    }
  }
}

TEST_P(ThreadPoolOfEverySize, CoversEveryIndexOnceInParallelFor) {
  for (const std::uint64_t count : {0u, 1u, 2u, 7u, 8u, 1000u}) {
    const std::uint32_t most = pool_.threads() == 1 ? 1 : pool_.threads() * ThreadPool::kPartsPerThread;
    const auto parts = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, most));
    std::vector<int> visits(count, 0);
    pool_.parallel_for(count, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
      EXPECT_LT(begin, end);
      bool is_part = false;
      for (std::uint32_t part = 0; part < parts; ++part)
        is_part |= split_range(count, parts, part) == IndexRange{begin, end};
      EXPECT_TRUE(is_part) << begin << " to " << end;
      for (std::uint64_t i = begin; i < end; ++i) ++visits[i];
    });
    EXPECT_EQ(visits, std::vector<int>(count, 1));
  }
}

// A thread that the system does not run holds up nothing but the piece that it has begun.
TEST(ThreadPool, TakesThePiecesOfALateThread) {
  ThreadPool pool(4);
  std::atomic<int> others = 0;
  pool.run_pieces(400, [&](std::uint32_t piece, unsigned) {
    if (piece == 100)  // the first of the second share; its thread is late until all other pieces are done
      while (others < 399) std::this_thread::yield();
    else
      ++others;
  });
  EXPECT_EQ(others, 399);
}

// Threads then yield, sleep and wake up within runs.
TEST(ThreadPool, RunsEveryPieceOnceBesideBusyPrograms) {
  std::atomic<bool> ends = false;
  std::vector<std::thread> busy;
  for (unsigned i = 0; i < 2 * std::max(1u, std::thread::hardware_concurrency()); ++i)
    busy.emplace_back([&ends] {
      while (!ends.load(std::memory_order_relaxed)) {
      }
    });
  ThreadPool pool(4);
  for (std::uint32_t round = 0; round < 100; ++round) {
    std::vector<std::atomic<int>> calls(1 + round % 50);
    std::atomic<std::uint64_t> sum = 0;
    pool.run_pieces(static_cast<std::uint32_t>(calls.size()), [&](std::uint32_t piece, unsigned) {
      for (std::uint64_t i = 0; i < 20'000; ++i) sum.fetch_add(i & 1, std::memory_order_relaxed);
      ++calls[piece];
    });
    EXPECT_TRUE(std::ranges::all_of(calls, [](const auto& count) { return count == 1; })) << round;
    EXPECT_EQ(sum, calls.size() * 10'000);
  }
  ends = true;
  for (std::thread& thread : busy) thread.join();
}

TEST(ThreadPool, RunsInQuickSuccessionDoNotMix) {
  ThreadPool pool(8);
  for (std::uint32_t round = 0; round < 5000; ++round) {
    const std::uint32_t pieces = 1 + round % 13;
    std::atomic<std::uint32_t> calls = 0;
    pool.run_pieces(pieces, [&calls, pieces](std::uint32_t piece, unsigned) {
      EXPECT_LT(piece, pieces);
      ++calls;
    });
    ASSERT_EQ(calls, pieces);
  }
}

TEST_P(ThreadPoolOfEverySize, MakesTheWritesOfARunVisibleToTheNext) {
  // Every worker reads what the others wrote in the previous run: without a fence the sum is wrong or
  // ThreadSanitizer reports a race.
  const unsigned threads = pool_.threads();
  std::vector<std::uint64_t> now(threads, 1);
  std::vector<std::uint64_t> next(threads, 0);
  for (int round = 0; round < 50; ++round) {
    pool_.run([&](unsigned worker) {
      next[worker] = std::accumulate(now.begin(), now.end(), std::uint64_t{0}) % 1'000'003;
    });
    const std::uint64_t sum = std::accumulate(now.begin(), now.end(), std::uint64_t{0}) % 1'000'003;
    ASSERT_EQ(next, std::vector<std::uint64_t>(threads, sum));
    std::swap(now, next);
  }
}

TEST_P(ThreadPoolOfEverySize, WakesSleepingWorkers) {
  std::atomic<unsigned> calls = 0;
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // much longer than workers spin
    pool_.run([&](unsigned) { ++calls; });
  }
  EXPECT_EQ(calls, 3 * pool_.threads());
}

TEST_P(ThreadPoolOfEverySize, WaitsForTheSlowestWorker) {
  std::atomic<bool> finished = false;
  const unsigned slowest = pool_.threads() - 1;
  pool_.run([&](unsigned worker) {
    if (worker != slowest) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    finished = true;
  });
  EXPECT_TRUE(finished);
}

TEST(ThreadPool, CanBeDestroyedWithoutARun) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(4);
}

TEST(ThreadPool, WorksBesideOtherPools) {
  std::vector<std::thread> callers;
  std::atomic<std::uint64_t> total = 0;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      ThreadPool pool(3);
      for (int round = 0; round < 100; ++round) {
        pool.parallel_for(30,
                          [&](std::uint64_t begin, std::uint64_t end, unsigned) { total += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 100 * 30);
}

TEST(ThreadPool, ForbidsNestedRuns) {
  EXPECT_CONTRACT(
      {
        ThreadPool pool(2);
        pool.run([&](unsigned) { pool.run([](unsigned) {}); });
      },
      "a thread pool runs one job at a time");
}

TEST(ThreadPool, RequiresAtLeastOneThread) {
  EXPECT_CONTRACT(ThreadPool(0), "a thread pool has at least one thread");
}

}  // namespace
}  // namespace moeflux
