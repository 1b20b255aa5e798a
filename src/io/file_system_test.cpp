#include "io/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/testing/states.h"
#include "io/memory_file.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using test::States;
using testing::HasSubstr;

struct ReadExactly : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  std::filesystem::path path = temporary.write("data.bin", "0123456789");

  std::unique_ptr<ReadFile> open() {
    auto file = files.open_read(path);
    EXPECT_TRUE(file) << file.error().message();
    return *std::move(file);
  }
};

std::string text_at(const ReadFile& file, std::uint64_t offset, std::size_t size) {
  std::string text(size, '?');
  const Status read = file.read_exactly(offset, std::as_writable_bytes(std::span(text)));
  return read ? text : read.error().message();
}

TEST_F(ReadExactly, FillsTheBufferFromTheOffset) {
  const auto file = open();
  EXPECT_EQ(text_at(*file, 3, 4), "3456");
  EXPECT_EQ(text_at(*file, 0, 10), "0123456789");
}

TEST_F(ReadExactly, CompletesShortReads) {
  files.set_plan({.longest_read_bytes = 3});
  const auto file = open();
  EXPECT_EQ(text_at(*file, 1, 8), "12345678");
  EXPECT_EQ(files.count(FileOperation::read), 3u);
  EXPECT_EQ(files.bytes(FileOperation::read), 8u);
}

TEST_F(ReadExactly, StatesOffsetAndSizesWhenTheFileEndsEarly) {
  const auto file = open();
  std::array<std::byte, 8> out;
  const Status read = file->read_exactly(6, out);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(read, States("data.bin", "8 bytes", "offset 6", "found 4"));
}

TEST_F(ReadExactly, FindsNoBytesPastTheEnd) {
  const auto file = open();
  EXPECT_THAT(text_at(*file, 1000, 2), States("data.bin", "2 bytes", "offset 1000", "found 0"));
}

TEST_F(ReadExactly, DoesNoReadForAnEmptySpan) {
  const auto file = open();
  EXPECT_TRUE(file->read_exactly(1000, {}));
  EXPECT_EQ(files.count(FileOperation::read), 0u);
}

TEST_F(ReadExactly, ReturnsAnErrorOfALaterRead) {
  files.set_plan({.faults = {{.operation = FileOperation::read, .index = 2, .error_number = EIO}},
                  .longest_read_bytes = 2});
  const auto file = open();
  std::array<std::byte, 10> out;
  const Status read = file->read_exactly(0, out);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::io_failed);
  EXPECT_THAT(read, States("data.bin", "offset 4", "Input/output error"));
  EXPECT_EQ(files.count(FileOperation::read), 3u);
}

TEST_F(ReadExactly, ReportsAFileThatIsTruncatedWhileOpen) {
  const auto file = open();
  EXPECT_EQ(text_at(*file, 0, 10), "0123456789");
  std::filesystem::resize_file(path, 4);
  EXPECT_THAT(text_at(*file, 2, 8), States("data.bin", "8 bytes", "offset 2", "found 2"));
}

struct ReadText : ReadExactly {};

TEST_F(ReadText, ReturnsTheWholeFile) {
  const auto text = files.read_text(path, 10);
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_EQ(*text, "0123456789");
}

TEST_F(ReadText, KeepsEveryByte) {
  const std::string bytes("a\0b\r\n\xff", 6);
  temporary.write("odd.txt", bytes);
  const auto text = files.read_text(temporary / "odd.txt", 100);
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_EQ(*text, bytes);
}

TEST_F(ReadText, RejectsAFileOverTheLimitWithoutReadingIt) {
  const auto text = files.read_text(path, 9);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(text, States("data.bin", "at most 9 bytes", "found 10"));
  EXPECT_EQ(files.count(FileOperation::read), 0u);
}

TEST_F(ReadText, ReadsAFileOfReportedSizeZeroToItsEnd) {
  const auto text = disk.read_text("/proc/self/status", 1 << 20);
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_THAT(*text, HasSubstr("\nVmRSS:"));
}

TEST_F(ReadText, AppliesTheLimitToAFileOfReportedSizeZero) {
  const auto text = disk.read_text("/proc/self/status", 100);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code(), ErrorCode::unsupported);
}

TEST_F(ReadText, ReportsAFileThatShrinksAfterItsSizeWasRead) {
  // Operation 0 opens the file, 1 gets its size, 2 reads.
  files.set_plan({.truncations = {{.path = path, .size_bytes = 4, .from_operation = 2}}});
  const auto text = files.read_text(path, 100);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(text, States("data.bin", "10 bytes", "offset 0", "found 4"));
}

TEST_F(ReadText, ReturnsTheErrorOfEveryOperation) {
  std::uint64_t failures = 0;
  while (true) {
    files.set_plan({.faults = {{.index = failures, .error_number = EIO}}});
    const auto text = files.read_text(path, 100);
    if (text) break;
    EXPECT_EQ(text.error().code(), ErrorCode::io_failed);
    EXPECT_THAT(text, States("data.bin"));
    ++failures;
  }
  EXPECT_EQ(failures, 4u) << "open, size, read, read at the end";
}

struct Exists : ReadExactly {};

TEST_F(Exists, IsTrueForFilesAndDirectoriesAndFalseOtherwise) {
  EXPECT_TRUE(*files.exists(path));
  EXPECT_TRUE(*files.exists(temporary.path()));
  EXPECT_FALSE(*files.exists(temporary / "absent"));
  EXPECT_FALSE(*files.exists(path / "below-a-file"));
}

TEST_F(Exists, ReturnsErrorsOtherThanNotFound) {
  files.set_plan({.faults = {{.operation = FileOperation::info, .error_number = EACCES}}});
  const auto exists = files.exists(path);
  ASSERT_FALSE(exists.has_value());
  EXPECT_EQ(exists.error().code(), ErrorCode::io_failed);
  EXPECT_THAT(exists, States("data.bin", "Permission denied"));
}

TEST(MemoryFile, IsReadLikeAFileOfItsBytes) {
  const std::string_view text = "0123456789";
  const MemoryFile file(std::as_bytes(std::span(text)));
  EXPECT_EQ(*file.size(), 10u);
  EXPECT_EQ(text_at(file, 0, 10), text);
  EXPECT_EQ(text_at(file, 7, 3), "789");
  EXPECT_THAT(text_at(file, 7, 4), States("bytes in memory", "4 bytes", "offset 7", "found 3"));
  std::array<std::byte, 4> out{};
  EXPECT_EQ(*file.read_some(8, out), 2u);
  for (const std::uint64_t offset : {std::uint64_t{10}, ~std::uint64_t{0}})
    EXPECT_EQ(*file.read_some(offset, out), 0u);
}

TEST(MemoryFile, MayBeEmpty) {
  const MemoryFile file({});
  EXPECT_EQ(*file.size(), 0u);
  std::array<std::byte, 4> out{};
  EXPECT_EQ(*file.read_some(0, out), 0u);
}

}  // namespace
}  // namespace moeflux
