#pragma once
// The engine's compute threads: a fork-join pool that deals out work in pieces.
//
// A pool of `threads` has threads - 1 workers and the calling thread, which is worker 0. A run is a number of
// pieces. Every thread begins with its own share of adjacent pieces and then takes pieces that are left in
// the shares of others, so a thread that the system does not run delays a run by at most the piece that it
// has begun. Which thread computes a piece depends on timing; what the pieces are does not.
//
// Both sides wait by spinning for a bounded time (tens of microseconds) and then sleep, so runs in quick
// succession need no system call, and an idle pool uses no CPU time.
//
// Other programs may compete for the CPUs. A yield that takes long shows that; for some time, waits then
// sleep almost at once, because a thread that spins uses up time that the system then gives to others, and
// threads yield between pieces before their time slice ends, because a thread that loses its CPU within a
// piece holds up the run.
//
// No allocation after construction. Only one run at a time; a nested run is a contract violation. Pieces must
// not throw.
//
// Cost of an empty region, medians of bench/fork_join_bench on 2 vCPUs of an EPYC (Zen 5) at 2.6 GHz: 4 ns
// with 1 thread; with 2 threads 0.13 us for run() and 0.28 us for parallel_for() when hot, 3 us when the
// worker sleeps (creating and joining a std::thread takes 29 us).

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace moeflux {

struct IndexRange {
  std::uint64_t begin;
  std::uint64_t end;
  constexpr std::uint64_t size() const { return end - begin; }
  friend constexpr bool operator==(const IndexRange&, const IndexRange&) = default;
};

// Splits [0, count) into `parts` adjacent ranges and returns the one numbered `part`. The sizes differ by at
// most one, and the larger ranges come first. Requires: part < parts.
constexpr IndexRange split_range(std::uint64_t count, unsigned parts, unsigned part) {
  const std::uint64_t least = count / parts;
  const std::uint64_t larger_parts = count % parts;
  const std::uint64_t begin = part * least + std::min<std::uint64_t>(part, larger_parts);
  return {begin, begin + least + (part < larger_parts ? 1 : 0)};
}

class ThreadPool {
 public:
  // Requires: threads >= 1. If the system refuses to start a thread, the pool is smaller: see threads().
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned threads() const { return threads_; }

  // Calls body(piece, worker) once for each piece below `pieces` and returns when all calls have returned.
  // `worker` is the thread that runs the call, below threads(); a thread runs one call at a time. The calls
  // see all earlier writes of the caller, and the caller sees all writes of the calls.
  void run_pieces(std::uint32_t pieces,
                  FunctionRef<void(std::uint32_t piece, unsigned worker)> body) noexcept;

  // Calls job(i) for i = 0 to threads() - 1: on each thread once, unless some are late.
  void run(FunctionRef<void(unsigned i)> job) noexcept;

  // Calls body(begin, end, worker) with the ranges of split_range(count, parts, part). There are at most
  // kPartsPerThread parts per thread, or one part if there is one thread.
  static constexpr std::uint32_t kPartsPerThread = 16;
  void parallel_for(std::uint64_t count,
                    FunctionRef<void(std::uint64_t begin, std::uint64_t end, unsigned worker)> body) noexcept;

 private:
  using Body = FunctionRef<void(std::uint32_t, unsigned)>;
  using Clock = std::chrono::steady_clock;

  // A thread, and the pieces of its share that are left: [next, end), in one word, so that a thread which
  // wakes up late takes either a piece of the current run or none.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> left = 0;
    Clock::time_point resumed = {};  // when the thread last got its CPU, if other programs compete; its own
  };
  static constexpr std::uint64_t pieces_from(std::uint64_t next, std::uint64_t end) {
    return end << 32 | next;
  }

  void fork(std::uint32_t pieces);
  bool take_pieces(unsigned worker);
  void join();
  void work(unsigned worker);
  bool has_competition();
  void give_way(unsigned worker);
  bool note_competition(Clock::duration yielded);
  template <class Condition>
  bool spin_until(const Condition& reached);

  unsigned threads_ = 1;
  unsigned spins_ = 0;
  std::vector<std::thread> workers_;
  std::vector<Share> shares_;  // one per thread

  // The data that cores exchange in a hot fork and join: one cache line per direction, and the shares.
  alignas(64) std::atomic<std::uint32_t> epoch_ = 0;       // advanced by the caller, once per run
  std::optional<Body> body_;                               // published by shares_
  std::atomic<bool> ends_ = false;                         // published by epoch_
  std::atomic<bool> running_ = false;                      // only checks the contract
  alignas(64) std::atomic<std::uint32_t> unfinished_ = 0;  // pieces of this run

  // A yield gave the CPU to another program; until then, other programs are assumed to compete. 0: none did.
  alignas(64) std::atomic<Clock::rep> competition_until_ = 0;

  // Sleeping. A thread that changes epoch_ or unfinished_ reads these afterwards; a thread that goes to sleep
  // sets its own and then reads epoch_ or unfinished_ once more. All accesses are sequentially consistent, so
  // at least one of the two threads sees the other's write.
  alignas(64) std::atomic<std::uint32_t> sleeping_workers_ = 0;
  std::atomic<bool> is_caller_asleep_ = false;
};

}  // namespace moeflux
