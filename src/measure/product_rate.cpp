#include "measure/product_rate.h"

#include <atomic>
#include <chrono>
#include <vector>

#include "measure/quantiles.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLeast{5};
constexpr std::uint64_t kFirstRounds = 1024;

struct Timed {
  std::uint64_t products;
  Clock::duration took;
};

Timed time_rounds(ThreadPool& pool, const KernelTable& kernels, std::uint64_t rounds) {
  std::atomic<std::uint64_t> products = 0;
  const Clock::time_point begin = Clock::now();
  pool.run([&](unsigned) { products += kernels.int8->saturate(rounds); });
  return {products, Clock::now() - begin};
}

}  // namespace

Result<double> measure_products_per_second(ThreadPool& pool, const KernelTable& kernels, unsigned repeats) {
  if (repeats == 0)
    return Error{ErrorCode::invalid_argument, "measuring products: expected at least 1 time, found 0"};
  std::uint64_t rounds = kFirstRounds;
  while (time_rounds(pool, kernels, rounds).took < kLeast) rounds *= 2;
  std::vector<double> rates;
  for (unsigned i = 0; i < repeats; ++i) {
    const auto [products, took] = time_rounds(pool, kernels, rounds);
    rates.push_back(static_cast<double>(products) / std::chrono::duration<double>(took).count());
  }
  return median(rates);
}

}  // namespace moeflux
