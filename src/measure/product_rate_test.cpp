#include "measure/product_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace moeflux {
namespace {

TEST(ProductRate, IsAPositiveNumberForEveryIsaAndNumberOfThreads) {
  for (const KernelTable* table : compiled_kernels()) {
    if (!table->runs_here()) continue;
    for (const unsigned threads : {1u, 2u}) {
      ThreadPool pool(threads);
      const Result<double> rate = measure_products_per_second(pool, *table, 3);
      ASSERT_TRUE(rate) << rate.error().message();
      EXPECT_TRUE(std::isfinite(*rate)) << table->name;
      EXPECT_GT(*rate, 0) << table->name;
    }
  }
}

TEST(ProductRate, CountsWhatWasAskedFor) {
  for (const KernelTable* table : compiled_kernels()) {
    if (!table->runs_here()) continue;
    EXPECT_EQ(table->int8->saturate(30), 10 * table->int8->saturate(3)) << table->name;
  }
}

TEST(ProductRate, NeedsSomethingToMeasure) {
  ThreadPool pool(1);
  const Result<double> rate = measure_products_per_second(pool, *compiled_kernels().back(), 0);
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace moeflux
