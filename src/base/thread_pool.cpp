#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "base/check.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

// A pause takes 40–140 cycles, so this is about 30–100 microseconds: longer than the gaps between the
// parallel regions of a layer, much shorter than a read from disk or a time slice of the scheduler.
constexpr unsigned kSpins = 2000;

// With more threads than CPUs, the awaited thread may need the CPU of the spinning one.
constexpr unsigned kSpinsOversubscribed = 64;

// Yield about once per microsecond. The kernel tends to wake a worker on the CPU of its waker, where it
// cannot run until the spin ends: a region with sleeping workers took 95 us without yields, 60 us of it
// spinning, and 9 us with yields (2 shared vCPUs, both busy).
constexpr unsigned kYieldEvery = 32;

// A yield that finds nothing else to run takes about a microsecond. One that takes longer than this has given
// the CPU to another program, for a whole time slice.
constexpr auto kForeignSlice = std::chrono::microseconds(200);
// Waits then spin only briefly and do not yield, for this long.
constexpr auto kImpatience = std::chrono::milliseconds(200);
constexpr unsigned kImpatientSpins = 32;

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
  wake_sleepers();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_pieces(std::uint32_t pieces, Body body) noexcept {
  MF_REQUIRE(!running_.load(std::memory_order_relaxed), "a thread pool runs one job at a time");
  if (pieces == 0) return;
  running_.store(true, std::memory_order_relaxed);
  if (threads_ > 1 && pieces > 1) {
    body_ = body;
    fork(pieces);
    const std::uint32_t of_workers = pieces - take_pieces(0);
    wait_until([&] { return done_.load() == of_workers; });
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
  done_.store(0, std::memory_order_relaxed);
  for (unsigned worker = 0; worker < threads_; ++worker) {
    const IndexRange share = split_range(pieces, threads_, worker);
    shares_[worker].left.store(pieces_from(share.begin, share.end), std::memory_order_release);
  }
  epoch_.fetch_add(1);
  wake_sleepers();
}

// Returns how many pieces it ran. Workers report theirs in done_ before they take any of another run: the run
// cannot end until then.
std::uint32_t ThreadPool::take_pieces(unsigned worker) {
  std::uint32_t taken = 0;
  for (unsigned i = 0; i < threads_; ++i) {
    std::atomic<std::uint64_t>& left = shares_[(worker + i) % threads_].left;
    const auto is_empty = [](std::uint64_t word) { return static_cast<std::uint32_t>(word) >= word >> 32; };
    while (!is_empty(left.load(std::memory_order_relaxed))) {
      const std::uint64_t word = left.fetch_add(1, std::memory_order_acq_rel);
      if (is_empty(word)) break;
      (*body_)(static_cast<std::uint32_t>(word), worker);
      ++taken;
    }
  }
  return taken;
}

void ThreadPool::work(unsigned worker) {
  for (std::uint32_t epoch = 0;;) {
    wait_until([&] { return epoch_.load() != epoch; });
    epoch = epoch_.load();
    if (ends_.load()) return;
    const std::uint32_t taken = take_pieces(worker);
    if (taken == 0) continue;
    done_.fetch_add(taken);
    wake_sleepers();
  }
}

bool ThreadPool::has_competition() {
  const Clock::rep until = impatient_until_.load(std::memory_order_relaxed);
  if (until == 0) return false;
  if (Clock::now().time_since_epoch().count() < until) return true;
  impatient_until_.store(0, std::memory_order_relaxed);
  return false;
}

template <class Condition>
void ThreadPool::wait_until(const Condition& reached) {
  const bool is_impatient = has_competition();
  const unsigned spins = is_impatient ? std::min(spins_, kImpatientSpins) : spins_;
  for (unsigned spin = 1; spin <= spins; ++spin) {
    if (reached()) return;
    if (is_impatient || spin % kYieldEvery != 0) {
      pause_cpu();
      continue;
    }
    const Clock::time_point before = Clock::now();
    std::this_thread::yield();
    const Clock::time_point now = Clock::now();
    if (now - before < kForeignSlice) continue;
    impatient_until_.store((now + kImpatience).time_since_epoch().count(), std::memory_order_relaxed);
    break;
  }
  if (reached()) return;
  Lock lock(mutex_);
  asleep_.fetch_add(1);
  while (!reached()) changed_.wait(mutex_);
  asleep_.fetch_sub(1);
}

void ThreadPool::wake_sleepers() {
  if (asleep_.load() == 0) return;
  Lock lock(mutex_);  // a sleeper holds it from its last check of the condition until it sleeps
  changed_.notify_all();
}

}  // namespace moeflux
