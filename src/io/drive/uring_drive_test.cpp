#include "io/drive/uring_drive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/memory/aligned_buffer.h"
#include "base/sizes.h"
#include "io/testing/drive_testing.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kPage = kDriveAlignment;

// Address space without memory.
struct Addresses {
  explicit Addresses(std::size_t bytes)
      : data(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
        size(bytes) {}
  ~Addresses() { ::munmap(data, size); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  std::span<std::byte> span() const { return {static_cast<std::byte*>(data), size}; }

  void* data;
  std::size_t size;
};

TEST(UringBuffers, AreEqualPartsOfAtMostOneGibibyte) {
  const Addresses addresses(5 * kGiB / 2);
  const std::vector<std::span<std::byte>> regions = {addresses.span()};
  const auto buffers = buffers_of(regions);
  ASSERT_THAT(buffers, SizeIs(3));
  const std::byte* next = addresses.span().data();
  std::size_t bytes = 0;
  for (const std::span<std::byte> buffer : buffers) {
    EXPECT_EQ(buffer.data(), next);
    EXPECT_LE(buffer.size(), kGiB);
    EXPECT_LE(buffers.front().size() - buffer.size(), 3 * kPage);
    next += buffer.size();
    bytes += buffer.size();
  }
  EXPECT_EQ(bytes, addresses.size);
}

TEST(UringBuffers, AreSortedByAddress) {
  const Addresses addresses(64 * kPage);
  const auto all = addresses.span();
  const std::vector<std::span<std::byte>> regions = {all.subspan(32 * kPage), all.first(0),
                                                     all.subspan(8 * kPage, 8 * kPage)};
  const auto buffers = buffers_of(regions);
  ASSERT_THAT(buffers, SizeIs(2));
  EXPECT_EQ(buffers[0].data(), all.data() + 8 * kPage);
  EXPECT_EQ(buffers[1].data(), all.data() + 32 * kPage);
  EXPECT_THAT(buffers_of({}), IsEmpty());
}

struct UringWithBuffers : testing::Test {
  TemporaryDirectory temporary;
  const std::string content = distinct_bytes(64 * kPage, 5);
  const std::vector<std::filesystem::path> paths = {temporary.write("file.bin", content)};
  AlignedBuffer memory = *AlignedBuffer::create(64 * kPage);

  void expect_reads_at(Drive& drive, std::size_t page, std::size_t pages) {
    const std::span<std::byte> out = memory.bytes().subspan(page * kPage, pages * kPage);
    std::memset(out.data(), 0, out.size());
    const DriveCompletion completion = read_one(drive, {page, 0, 3 * kPage, out});
    EXPECT_EQ(completion.tag, page);
    EXPECT_EQ(completion.error_number, 0);
    EXPECT_EQ(completion.bytes, out.size());
    EXPECT_EQ(text_of(out), std::string_view(content).substr(3 * kPage, out.size()));
  }
};

TEST_F(UringWithBuffers, ReadsInsideAcrossAndOutsideThem) {
  // Two adjacent buffers and one apart, with unregistered memory before, between and after.
  const auto all = memory.bytes();
  const Result<OpenedDrive> opened =
      open_drive(paths, {.depth = 4,
                         .memory = {all.subspan(40 * kPage, 8 * kPage), all.subspan(4 * kPage, 8 * kPage),
                                    all.subspan(12 * kPage, 8 * kPage)}});
  ASSERT_TRUE(opened);
  Drive& drive = *opened->drive;
  if (drive.kind() != DriveKind::uring) GTEST_SKIP() << opened->refusals.front();
  if (drive.describe() != "io_uring, direct reads, fixed buffers") GTEST_SKIP() << opened->refusals.front();
  EXPECT_THAT(opened->refusals, IsEmpty());
  for (const std::size_t page :
       {0U, 2U, 3U, 4U, 8U, 10U, 11U, 12U, 18U, 19U, 20U, 30U, 38U, 40U, 46U, 47U, 48U, 60U}) {
    for (const std::size_t pages : {1U, 2U, 4U}) expect_reads_at(drive, page, pages);
  }
  expect_reads_at(drive, 0, 40);
}

TEST_F(UringWithBuffers, DoesNotRegisterThemIfTheOptionIsOff) {
  const Result<OpenedDrive> opened =
      open_drive(paths, {.memory = {memory.bytes()}, .uses_fixed_buffers = false});
  ASSERT_TRUE(opened);
  if (opened->drive->kind() != DriveKind::uring) GTEST_SKIP() << opened->refusals.front();
  EXPECT_EQ(opened->drive->describe(), "io_uring, direct reads");
  EXPECT_THAT(opened->refusals, testing::Each(testing::Not(testing::StartsWith("fixed buffers"))));
  expect_reads_at(*opened->drive, 5, 3);
}

TEST_F(UringWithBuffers, ReadsWithoutThemIfRegisteringFails) {
  const Addresses addresses(kPage);  // not writable
  const Result<OpenedDrive> opened = open_drive(paths, {.memory = {addresses.span()}});
  ASSERT_TRUE(opened);
  if (opened->drive->kind() != DriveKind::uring) GTEST_SKIP() << opened->refusals.front();
  EXPECT_EQ(opened->drive->describe(), "io_uring, direct reads");
  EXPECT_THAT(opened->refusals, testing::Contains(testing::StartsWith("fixed buffers are refused (E")));
  expect_reads_at(*opened->drive, 5, 3);
  const DriveCompletion unwritable = read_one(*opened->drive, {7, 0, 0, addresses.span()});
  EXPECT_EQ(unwritable.tag, 7U);
  EXPECT_EQ(unwritable.error_number, EFAULT);
}

}  // namespace
}  // namespace moeflux
