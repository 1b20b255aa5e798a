#include "base/published.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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

// A long value, so that a thread is often interrupted in the middle of it. The writer goes on until every
// reader has seen many publications.
TEST(Published, ReadersGetWholePublicationsInTheirOrder) {
  using Long = std::array<std::uint64_t, 500>;
  constexpr std::uint64_t kSeen = 500;
  constexpr int kReaders = 3;
  Published<Long> published;
  std::atomic<std::uint64_t> torn = 0, backward = 0;
  std::atomic<int> reading = kReaders;
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i)
    readers.emplace_back([&] {
      std::uint64_t last = 0, seen = 0;
      while (seen < kSeen) {
        const Long found = published.read();
        torn += static_cast<std::uint64_t>(std::ranges::count(found, found[0])) != found.size();
        backward += found[0] < last;
        seen += found[0] != last;
        last = found[0];
      }
      --reading;
    });
  Long value;
  for (std::uint64_t n = 1; reading > 0; ++n) {
    value.fill(n);
    published.publish(value);
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(backward, 0u);
}

}  // namespace
}  // namespace moeflux
