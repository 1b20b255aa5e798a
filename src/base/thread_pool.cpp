#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "base/check.h"
#include "base/futex.h"

namespace moeflux {
namespace {

// A pause takes 40–140 cycles, so this is about 30–100 microseconds: longer than the gaps between the
// parallel regions of a layer, much shorter than a read from disk or a time slice of the scheduler.
constexpr unsigned kSpins = 2000;

// With more threads than CPUs, the awaited thread may need the CPU of the spinning one.
constexpr unsigned kSpinsOversubscribed = 64;

// Yield about once per microsecond. The kernel tends to wake a worker on the CPU of its waker, where it
// cannot run until the spin ends: a region with sleeping workers took 95 us without yields, 60 us of it
// spinning, and 9 us with yields (2 shared vCPUs, both busy).
constexpr unsigned kYieldEvery = 32;

// A yield that finds nothing else to run takes about a microsecond. One that takes longer than this has
// given the CPU to another program, for a whole time slice.
constexpr auto kForeignSlice = std::chrono::microseconds(200);
// Competition is then assumed for this long.
constexpr auto kCompetition = std::chrono::milliseconds(200);

// A thread that has computed for this long yields between pieces, so that it does not lose its CPU within
// one. Time slices are 3 ms where many processors share the work.
constexpr auto kBurst = std::chrono::milliseconds(1);
// 16 threads beside 16 busy programs (40 layers of the 35B shape, a Sapphire Rapids): 22 tok/s with 200
// spins, 17 with 32.
constexpr unsigned kSpinsInCompetition = 200;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(unsigned threads) : shares_(threads) {
  MF_REQUIRE(threads >= 1, "a thread pool has at least one thread");
  workers_.reserve(threads - 1);
  spins_ = threads > std::thread::hardware_concurrency() ? kSpinsOversubscribed : kSpins;
  try {
    while (threads_ < threads) {
      workers_.emplace_back([this, worker = threads_] { work(worker); });
      ++threads_;
    }
  } catch (const std::system_error&) {
    // The pool consists of the threads that did start.
  }
}

ThreadPool::~ThreadPool() {
  MF_REQUIRE(!running_.load(std::memory_order_relaxed), "a thread pool outlives its runs");
  ends_.store(true);
  epoch_.fetch_add(1);
  if (sleeping_workers_.load() != 0) futex_wake_all(epoch_);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_pieces(std::uint32_t pieces, Body body) noexcept {
  MF_REQUIRE(!running_.load(std::memory_order_relaxed), "a thread pool runs one job at a time");
  if (pieces == 0) return;
  running_.store(true, std::memory_order_relaxed);
  if (threads_ > 1 && pieces > 1) {
    body_ = body;
    fork(pieces);
    join();
  } else {
    for (std::uint32_t piece = 0; piece < pieces; ++piece) body(piece, 0);
  }
  running_.store(false, std::memory_order_relaxed);
}

void ThreadPool::run(FunctionRef<void(unsigned)> job) noexcept {
  run_pieces(threads_, [&](std::uint32_t piece, unsigned) { job(piece); });
}

void ThreadPool::parallel_for(std::uint64_t count,
                              FunctionRef<void(std::uint64_t, std::uint64_t, unsigned)> body) noexcept {
  const std::uint64_t most = threads_ == 1 ? 1 : std::uint64_t{threads_} * kPartsPerThread;
  const auto parts = static_cast<std::uint32_t>(std::min(count, most));
  run_pieces(parts, [&](std::uint32_t part, unsigned worker) {
    const IndexRange range = split_range(count, parts, part);
    body(range.begin, range.end, worker);
  });
}

void ThreadPool::fork(std::uint32_t pieces) {
  unfinished_.store(pieces, std::memory_order_relaxed);
  for (unsigned worker = 0; worker < threads_; ++worker) {
    const IndexRange share = split_range(pieces, threads_, worker);
    shares_[worker].left.store(pieces_from(share.begin, share.end), std::memory_order_release);
  }
  epoch_.fetch_add(1);
  if (sleeping_workers_.load() != 0) futex_wake_all(epoch_);
}

// Runs pieces until none are left, and returns whether it finished the last one of the run. Reports the
// pieces of a share before it looks at the next: then the last thread to finish need not look at all the
// others' shares before the run ends, which takes 1.5 us with 16 threads.
bool ThreadPool::take_pieces(unsigned worker) {
  const bool gives_way = has_competition();
  for (unsigned i = 0; i < threads_; ++i) {
    std::atomic<std::uint64_t>& left = shares_[(worker + i) % threads_].left;
    const auto is_empty = [](std::uint64_t word) { return static_cast<std::uint32_t>(word) >= word >> 32; };
    std::uint32_t taken = 0;
    while (!is_empty(left.load(std::memory_order_relaxed))) {
      if (gives_way) give_way(worker);
      const std::uint64_t word = left.fetch_add(1, std::memory_order_acq_rel);
      if (is_empty(word)) break;
      (*body_)(static_cast<std::uint32_t>(word), worker);
      ++taken;
    }
    if (taken != 0 && unfinished_.fetch_sub(taken) == taken) return true;
  }
  return false;
}

void ThreadPool::join() {
  const auto is_finished = [this] { return unfinished_.load() == 0; };
  if (take_pieces(0) || spin_until(is_finished)) return;
  is_caller_asleep_.store(true);
  while (const std::uint32_t left = unfinished_.load()) futex_wait(unfinished_, left);
  is_caller_asleep_.store(false);
  shares_[0].resumed = Clock::now();
}

void ThreadPool::work(unsigned worker) {
  for (std::uint32_t epoch = 0;;) {
    if (!spin_until([&] { return epoch_.load() != epoch; })) {
      sleeping_workers_.fetch_add(1);
      while (epoch_.load() == epoch) futex_wait(epoch_, epoch);
      sleeping_workers_.fetch_sub(1);
      shares_[worker].resumed = Clock::now();
    }
    epoch = epoch_.load();
    if (ends_.load()) return;
    if (take_pieces(worker) && is_caller_asleep_.load()) futex_wake_all(unfinished_);
  }
}

bool ThreadPool::has_competition() {
  const Clock::rep until = competition_until_.load(std::memory_order_relaxed);
  if (until == 0) return false;
  if (Clock::now().time_since_epoch().count() < until) return true;
  competition_until_.store(0, std::memory_order_relaxed);
  return false;
}

// Whether a yield of this duration gave the CPU to another program; if so, competition is assumed.
bool ThreadPool::note_competition(Clock::duration yielded) {
  if (yielded < kForeignSlice) return false;
  competition_until_.store((Clock::now() + kCompetition).time_since_epoch().count(),
                           std::memory_order_relaxed);
  return true;
}

void ThreadPool::give_way(unsigned worker) {
  const Clock::time_point before = Clock::now();
  if (before - shares_[worker].resumed < kBurst) return;
  std::this_thread::yield();
  shares_[worker].resumed = Clock::now();
  note_competition(shares_[worker].resumed - before);
}

template <class Condition>
bool ThreadPool::spin_until(const Condition& reached) {
  const bool competes = has_competition();
  const unsigned spins = competes ? std::min(spins_, kSpinsInCompetition) : spins_;
  for (unsigned spin = 1; spin <= spins; ++spin) {
    if (reached()) return true;
    if (competes || spin % kYieldEvery != 0) {
      pause_cpu();
      continue;
    }
    const Clock::time_point before = Clock::now();
    std::this_thread::yield();
    if (note_competition(Clock::now() - before)) break;
  }
  return reached();
}

}  // namespace moeflux
