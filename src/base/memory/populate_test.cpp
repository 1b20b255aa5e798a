#include "base/memory/populate.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/memory/aligned_buffer.h"
#include "base/sizes.h"

namespace moeflux {
namespace {

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

// How many pages of [begin, begin + bytes) are resident. Requires: `begin` is the start of a page.
std::size_t present_pages(std::byte* begin, std::size_t bytes) {
  std::vector<unsigned char> pages((bytes + page_bytes() - 1) / page_bytes());
  EXPECT_EQ(::mincore(begin, bytes, pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

struct Populate : testing::Test {
  void SetUp() override {
#ifdef MADV_POPULATE_WRITE
    Result<HugeBuffer> buffer = HugeBuffer::create(page_bytes());
    if (buffer && ::madvise(buffer->data(), page_bytes(), MADV_POPULATE_WRITE) == 0) return;
#endif
    GTEST_SKIP() << "this kernel has no MADV_POPULATE_WRITE";
  }
};

TEST_F(Populate, PopulatesEveryPageWithAnyNumberOfThreads) {
  constexpr std::size_t kSize = 150 * kMiB;  // more than two parts
  for (const unsigned threads : {0u, 1u, 3u}) {
    Result<HugeBuffer> buffer = HugeBuffer::create(kSize);
    ASSERT_TRUE(buffer) << buffer.error().message();
    EXPECT_EQ(present_pages(buffer->data(), kSize), 0u);
    populate(buffer->bytes(), threads);
    EXPECT_EQ(present_pages(buffer->data(), kSize), kSize / page_bytes());
  }
}

TEST_F(Populate, KeepsTheContents) {
  Result<HugeBuffer> buffer = HugeBuffer::create(3 * kMiB);
  ASSERT_TRUE(buffer);
  std::ranges::fill(buffer->bytes().first(kMiB), std::byte{5});
  populate(buffer->bytes(), 2);
  EXPECT_TRUE(
      std::ranges::all_of(buffer->bytes().first(kMiB), [](std::byte byte) { return byte == std::byte{5}; }));
  EXPECT_TRUE(std::ranges::all_of(buffer->bytes().subspan(kMiB),
                                  [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(Populate, PopulatesOnlyWholePages) {
  const std::size_t page = page_bytes();
  // No huge pages, because they would populate neighbors too.
  const auto unmap = [page](void* pages) { ::munmap(pages, 4 * page); };
  const std::unique_ptr<void, decltype(unmap)> pages(
      ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), unmap);
  ASSERT_NE(pages.get(), MAP_FAILED);
  ASSERT_EQ(::madvise(pages.get(), 4 * page, MADV_NOHUGEPAGE), 0);
  auto* const begin = static_cast<std::byte*>(pages.get());
  populate({begin + 1, 2 * page - 2}, 1);  // no whole page
  EXPECT_EQ(present_pages(begin, 4 * page), 0u);
  populate({begin + 1, 3 * page}, 1);
  EXPECT_EQ(present_pages(begin, page), 0u);
  EXPECT_EQ(present_pages(begin + page, 2 * page), 2u);
  EXPECT_EQ(present_pages(begin + 3 * page, page), 0u);
  populate({}, 1);
}

TEST_F(Populate, IgnoresMemoryThatIsNotWritable) {
  const std::size_t page = page_bytes();
  void* const nothing = ::mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nothing, MAP_FAILED);
  populate({static_cast<std::byte*>(nothing), page}, 1);
  EXPECT_EQ(present_pages(static_cast<std::byte*>(nothing), page), 0u);
  ::munmap(nothing, page);
}

}  // namespace
}  // namespace moeflux
