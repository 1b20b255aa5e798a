#include "base/published.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/testing/allocation_counter.h"

namespace moeflux {
namespace {

struct Numbers {
  std::uint64_t first = 1;
  std::chrono::nanoseconds time{2};
  std::uint64_t all[14] = {};
  friend bool operator==(const Numbers&, const Numbers&) = default;
};

// A value that a reader can check.
Numbers numbers_of(std::uint64_t n) {
  Numbers numbers{.first = n, .time = std::chrono::nanoseconds(n)};
  std::ranges::fill(numbers.all, n);
  return numbers;
}

TEST(Published, HoldsTheLastPublication) {
  Published<Numbers> published;
  EXPECT_EQ(published.read(), Numbers());
  for (std::uint64_t n = 0; n < 5; ++n) {
    published.publish(numbers_of(n));
    EXPECT_EQ(published.read(), numbers_of(n));
    EXPECT_EQ(published.read(), numbers_of(n));
  }
  EXPECT_EQ(Published<Numbers>(numbers_of(9)).read(), numbers_of(9));
}

TEST(Published, AllocatesNothing) {
  Published<Numbers> published;
  const AllocationCounter counter;
  published.publish(numbers_of(3));
  const bool is_equal = published.read() == numbers_of(3);
  EXPECT_EQ(counter.allocations(), 0u);
  EXPECT_TRUE(is_equal);
}

TEST(Published, ReadersGetWholePublicationsInTheirOrder) {
  constexpr std::uint64_t kPublications = 50'000;
  Published<Numbers> published(numbers_of(0));
  std::atomic<std::uint64_t> torn = 0, backward = 0, distinct = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      std::uint64_t last = 0;
      while (last < kPublications) {
        const Numbers found = published.read();
        torn += found != numbers_of(found.first);
        backward += found.first < last;
        distinct += found.first != last;
        last = found.first;
      }
    });
  for (std::uint64_t n = 1; n <= kPublications; ++n) published.publish(numbers_of(n));
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(backward, 0u);
  EXPECT_GE(distinct, 3u);
}

}  // namespace
}  // namespace moeflux
