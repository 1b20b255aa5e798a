#include "measure/memory_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/memory/aligned_buffer.h"
#include "base/sizes.h"
#include "base/testing/expect_contract.h"
#include "base/testing/states.h"

namespace moeflux {
namespace {

// Byte i counts 256^(i % 8), its place value in a little-endian word.
std::uint64_t slow_sum(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    sum += std::to_integer<std::uint64_t>(bytes[i]) << (i % 8 * 8);
  return sum;
}

struct SumOfWordsByThreads : testing::TestWithParam<unsigned> {
  ThreadPool pool{GetParam()};
};

TEST_P(SumOfWordsByThreads, ReadsEveryByteOfEverySize) {
  Result<AlignedBuffer> buffer = AlignedBuffer::create(3000);
  ASSERT_TRUE(buffer);
  for (std::size_t i = 0; i < buffer->size(); ++i)
    buffer->bytes()[i] = static_cast<std::byte>(i * 37 + i / 256);
  for (std::size_t size = 0; size <= 1100; ++size) {
    const std::span<const std::byte> bytes = buffer->bytes().first(size);
    ASSERT_EQ(sum_of_words(pool, bytes), slow_sum(bytes)) << size;
  }
}

TEST_P(SumOfWordsByThreads, ChangesWithEachByte) {
  Result<AlignedBuffer> buffer = AlignedBuffer::create(1003);
  ASSERT_TRUE(buffer);
  const std::span<std::byte> bytes = buffer->bytes();
  std::ranges::fill(bytes, std::byte{0xA5});
  const std::uint64_t before = sum_of_words(pool, bytes);
  for (std::byte& byte : bytes) {
    byte = std::byte{0xA6};
    ASSERT_NE(sum_of_words(pool, bytes), before);
    byte = std::byte{0xA5};
  }
  EXPECT_EQ(sum_of_words(pool, bytes), before);
}

INSTANTIATE_TEST_SUITE_P(, SumOfWordsByThreads, testing::Values(1u, 2u, 5u));

TEST(SumOfWords, IsPromisedWholeLines) {
  ThreadPool pool(1);
  Result<AlignedBuffer> buffer = AlignedBuffer::create(128);
  ASSERT_TRUE(buffer);
  EXPECT_CONTRACT(sum_of_words(pool, buffer->bytes().subspan(8)), "bytes begin with a line");
}

TEST(MemoryRate, IsAPositiveNumber) {
  for (const unsigned threads : {1u, 2u, 3u}) {
    ThreadPool pool(threads);
    for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{63}, 100 * kKiB, 3 * kMiB + 17})
      for (const unsigned repeats : {1u, 2u, 5u}) {
        const Result<double> rate = measure_read_bytes_per_second(pool, bytes, repeats);
        ASSERT_TRUE(rate) << rate.error().message();
        EXPECT_TRUE(std::isfinite(*rate));
        EXPECT_GT(*rate, 0);
      }
  }
}

TEST(MemoryRate, OfBytesThatAreThereChangesNone) {
  ThreadPool pool(2);
  Result<AlignedBuffer> buffer = AlignedBuffer::create(100 * kKiB);
  ASSERT_TRUE(buffer);
  std::ranges::fill(buffer->bytes(), std::byte{7});
  const Result<double> rate = measure_read_bytes_per_second(pool, buffer->bytes(), 3);
  ASSERT_TRUE(rate) << rate.error().message();
  EXPECT_GT(*rate, 0);
  EXPECT_TRUE(std::ranges::all_of(buffer->bytes(), [](std::byte byte) { return byte == std::byte{7}; }));
  EXPECT_FALSE(measure_read_bytes_per_second(pool, std::span<const std::byte>(), 3));
  EXPECT_FALSE(measure_read_bytes_per_second(pool, buffer->bytes(), 0));
}

TEST(MemoryRate, NeedsSomethingToMeasure) {
  ThreadPool pool(1);
  for (const auto& [bytes, repeats] :
       {std::pair<std::uint64_t, unsigned>{0, 3}, {4096, 0}, {4096, std::numeric_limits<unsigned>::max()}}) {
    const Result<double> rate = measure_read_bytes_per_second(pool, bytes, repeats);
    ASSERT_FALSE(rate);
    EXPECT_EQ(rate.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(rate, test::States("memory", "1 byte"));
  }
}

TEST(MemoryRate, SaysWhenThereIsNoMemory) {
  ThreadPool pool(1);
  const Result<double> rate =
      measure_read_bytes_per_second(pool, std::numeric_limits<std::uint64_t>::max() - 1, 1);
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().code(), ErrorCode::out_of_memory);
}

}  // namespace
}  // namespace moeflux
