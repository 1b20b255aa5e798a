// Measures the overhead of a parallel region.
//
//   fork_join_bench --benchmark_repetitions=5
//
// PoolHot: consecutive regions, while the workers still spin. PoolParked: the workers sleep, as after a wait
// for the disk. StdThread: threads are created and joined for each region, for comparison.

#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

namespace moeflux {
namespace {

void touch(unsigned worker) { benchmark::DoNotOptimize(worker); }

void PoolHot(benchmark::State& state) {
  ThreadPool pool(static_cast<unsigned>(state.range(0)));
  for (auto _ : state) pool.run(touch);
}
BENCHMARK(PoolHot)->Arg(1)->Arg(2)->ArgName("threads")->UseRealTime();

void PoolHotParallelFor(benchmark::State& state) {
  ThreadPool pool(static_cast<unsigned>(state.range(0)));
  for (auto _ : state) {
    pool.parallel_for(
        64, [](std::uint64_t begin, std::uint64_t end, unsigned) { benchmark::DoNotOptimize(begin + end); });
  }
}
BENCHMARK(PoolHotParallelFor)->Arg(1)->Arg(2)->ArgName("threads")->UseRealTime();

void PoolParked(benchmark::State& state) {
  ThreadPool pool(static_cast<unsigned>(state.range(0)));
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto begin = std::chrono::steady_clock::now();
    pool.run(touch);
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
}
BENCHMARK(PoolParked)->Arg(2)->ArgName("threads")->UseManualTime()->Iterations(300);

void StdThread(benchmark::State& state) {
  std::vector<std::thread> workers(static_cast<std::size_t>(state.range(0)) - 1);
  for (auto _ : state) {
    unsigned number = 0;
    for (std::thread& worker : workers) worker = std::thread(touch, ++number);
    touch(0);
    for (std::thread& worker : workers) worker.join();
  }
}
BENCHMARK(StdThread)->Arg(1)->Arg(2)->ArgName("threads")->UseRealTime();

}  // namespace
}  // namespace moeflux
