#include "base/memory/aligned_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/sizes.h"
#include "base/testing/expect_contract.h"
#include "base/testing/states.h"

// By default the allocators of the sanitizers abort where malloc returns null.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace moeflux {
namespace {

using test::States;

constexpr std::size_t kImpossible = std::size_t{1} << 60;

bool is_aligned(const std::byte* data, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

TEST(AlignedBuffer, HasTheRequestedAlignment) {
  for (const std::size_t alignment :
       {std::size_t{8}, std::size_t{64}, std::size_t{4096}, std::size_t{1} << 21}) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{4095}, std::size_t{10'000}}) {
      auto buffer = AlignedBuffer::create(size, alignment);
      ASSERT_TRUE(buffer);
      EXPECT_TRUE(is_aligned(buffer->data(), alignment));
      EXPECT_EQ(buffer->bytes().size(), size);
      std::memset(buffer->data(), 0xAB, size);  // the sanitizers check that all of it is allocated
    }
  }
}

TEST(AlignedBuffer, IsEmptyWithSizeZero) {
  const auto buffer = AlignedBuffer::create(0);
  ASSERT_TRUE(buffer);
  EXPECT_TRUE(buffer->bytes().empty());
}

TEST(AlignedBuffer, MovesItsMemory) {
  static_assert(!std::is_copy_constructible_v<AlignedBuffer>);
  auto created = AlignedBuffer::create(100);
  ASSERT_TRUE(created);
  AlignedBuffer first = *std::move(created);
  const std::byte* const data = first.data();
  AlignedBuffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.size(), 100);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): moved-from is empty
  EXPECT_EQ(first.size(), 0);
  second = AlignedBuffer();
  EXPECT_EQ(second.size(), 0);
}

TEST(AlignedBuffer, StatesTheSizeIfItCannotAllocate) {
  const auto buffer = AlignedBuffer::create(kImpossible);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code(), ErrorCode::out_of_memory);
  EXPECT_THAT(buffer, States("1,152,921,504,606,846,976 bytes", "1.15 EB"));
}

TEST(AlignedBuffer, RequiresAnAlignmentThatIsAPowerOfTwo) {
  EXPECT_CONTRACT((void)AlignedBuffer::create(1, 48), "alignment is a power of two");
}

TEST(HugeBuffer, IsZeroFilledAndAligned) {
  for (const std::size_t size : {std::size_t{1}, HugeBuffer::kAlignment, HugeBuffer::kAlignment * 2 + 3}) {
    auto buffer = HugeBuffer::create(size);
    ASSERT_TRUE(buffer);
    EXPECT_TRUE(is_aligned(buffer->data(), HugeBuffer::kAlignment));
    EXPECT_EQ(buffer->size(), size);
    EXPECT_TRUE(std::ranges::all_of(buffer->bytes(), [](std::byte b) { return b == std::byte{0}; }));
    std::ranges::fill(buffer->bytes(), std::byte{7});
  }
}

TEST(HugeBuffer, IsEmptyWithSizeZero) {
  const auto buffer = HugeBuffer::create(0);
  ASSERT_TRUE(buffer);
  EXPECT_TRUE(buffer->bytes().empty());
  EXPECT_EQ(buffer->granted_huge_bytes(), 0);
}

TEST(HugeBuffer, HasHugePagesOnlyIfTheAdviceWasAccepted) {
  auto buffer = HugeBuffer::create(4 * HugeBuffer::kAlignment);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(buffer->granted_huge_bytes(), 0) << "nothing was written yet";
  std::ranges::fill(buffer->bytes(), std::byte{1});
  const std::uint64_t granted = buffer->granted_huge_bytes();
  EXPECT_LE(granted, buffer->size());
  EXPECT_EQ(granted % HugeBuffer::kAlignment, 0);
  if (buffer->huge_pages() == HugePages::refused) {
    EXPECT_EQ(granted, 0);
  }
}

TEST(HugeBuffer, MovesItsMemory) {
  static_assert(!std::is_copy_constructible_v<HugeBuffer>);
  auto created = HugeBuffer::create(100);
  ASSERT_TRUE(created);
  HugeBuffer first = *std::move(created);
  first.data()[99] = std::byte{42};
  HugeBuffer second;
  second = std::move(first);
  EXPECT_EQ(second.bytes()[99], std::byte{42});
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): moved-from is empty
  EXPECT_EQ(first.size(), 0);
}

TEST(HugeBuffer, StatesTheSizeIfItCannotAllocate) {
  for (const std::size_t size : {kImpossible, ~std::size_t{0}, ~std::size_t{0} - HugeBuffer::kAlignment}) {
    const auto buffer = HugeBuffer::create(size);
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().code(), ErrorCode::out_of_memory);
    EXPECT_THAT(buffer, States("allocate", with_thousands(size) + " bytes"));
  }
}

#if MF_DEATH_TESTS
TEST(HugeBuffer, FaultsOnAccessPastEitherEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto buffer = HugeBuffer::create(HugeBuffer::kAlignment);
  ASSERT_TRUE(buffer);
  volatile std::byte* const data = buffer->data();
  EXPECT_DEATH(data[-1] = std::byte{1}, "");
  EXPECT_DEATH(data[HugeBuffer::kAlignment] = std::byte{1}, "");
}
#endif

}  // namespace
}  // namespace moeflux
