#include "base/thread_pool.h"

#include <system_error>

#include "base/check.h"

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

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(unsigned threads) {
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
  fork(std::nullopt);
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(Job job) noexcept {
  MF_REQUIRE(!running_.load(std::memory_order_relaxed), "a thread pool runs one job at a time");
  running_.store(true, std::memory_order_relaxed);
  if (threads_ > 1) {
    fork(job);
    job(0);
    wait_until([this] { return busy_.load() == 0; });
  } else {
    job(0);
  }
  running_.store(false, std::memory_order_relaxed);
}

void ThreadPool::parallel_for(std::uint64_t count,
                              FunctionRef<void(std::uint64_t, std::uint64_t, unsigned)> body) noexcept {
  if (count == 0) return;
  run([&](unsigned worker) {
    const IndexRange range = split_range(count, threads_, worker);
    if (range.size() != 0) body(range.begin, range.end, worker);
  });
}

void ThreadPool::fork(std::optional<Job> job) {
  job_ = job;
  busy_.store(threads_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1);
  wake_sleepers();
}

void ThreadPool::work(unsigned worker) {
  // A run ends when all workers have finished its epoch, so no worker can miss one.
  for (std::uint32_t epoch = 1;; ++epoch) {
    wait_until([&] { return epoch_.load() == epoch; });
    if (!job_) return;
    (*job_)(worker);
    if (busy_.fetch_sub(1) == 1) wake_sleepers();
  }
}

template <class Condition>
void ThreadPool::wait_until(const Condition& reached) {
  for (unsigned spin = 0; spin < spins_; ++spin) {
    if (reached()) return;
    if (spin % kYieldEvery == kYieldEvery - 1) {
      std::this_thread::yield();
    } else {
      pause_cpu();
    }
  }
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
