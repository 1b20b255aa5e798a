#include "io/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <string>

#include "io/faulty_file_system.h"
#include "io/posix_file_system.h"
#include "io/temporary_directory.h"

namespace moeflux {
namespace {

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

TEST_F(ReadExactly, AnEarlyEndSaysWhereAndHowMuchWasExpectedAndFound) {
  const auto file = open();
  std::array<std::byte, 8> out;
  const Status read = file->read_exactly(6, out);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(read.error().message(),
              HasSubstr("data.bin' ends early: expected 8 bytes at offset 6, found 4"));
}

TEST_F(ReadExactly, StartingBehindTheEndFindsNothing) {
  const auto file = open();
  EXPECT_THAT(text_at(*file, 1000, 2), HasSubstr("expected 2 bytes at offset 1000, found 0"));
}

TEST_F(ReadExactly, NothingAskedForReadsNothing) {
  const auto file = open();
  EXPECT_TRUE(file->read_exactly(1000, {}));
  EXPECT_EQ(files.count(FileOperation::read), 0u);
}

TEST_F(ReadExactly, AnErrorInTheMiddleSurfaces) {
  files.set_plan({.faults = {{.operation = FileOperation::read, .index = 2, .error_number = EIO}},
                  .longest_read_bytes = 2});
  const auto file = open();
  std::array<std::byte, 10> out;
  const Status read = file->read_exactly(0, out);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::io_failed);
  EXPECT_THAT(read.error().message(), HasSubstr("data.bin' at offset 4: Input/output error"));
  EXPECT_EQ(files.count(FileOperation::read), 3u);
}

TEST_F(ReadExactly, AFileThatIsTruncatedWhileOpenIsAnErrorAndNotZeros) {
  const auto file = open();
  EXPECT_EQ(text_at(*file, 0, 10), "0123456789");
  std::filesystem::resize_file(path, 4);
  EXPECT_THAT(text_at(*file, 2, 8), HasSubstr("expected 8 bytes at offset 2, found 2"));
}

struct ReadText : ReadExactly {};

TEST_F(ReadText, IsTheWholeFile) {
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

TEST_F(ReadText, AFileOverTheLimitIsRefusedBeforeItIsRead) {
  const auto text = files.read_text(path, 9);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(text.error().message(), HasSubstr("data.bin' is too large to read as text: 10 bytes"));
  EXPECT_THAT(text.error().message(), HasSubstr("at most 9 expected"));
  EXPECT_EQ(files.count(FileOperation::read), 0u);
}

TEST_F(ReadText, AFileThatSaysItIsEmptyIsReadToItsEnd) {
  const auto text = disk.read_text("/proc/self/status", 1 << 20);
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_THAT(*text, HasSubstr("\nVmRSS:"));
}

TEST_F(ReadText, AFileThatSaysItIsEmptyIsHeldToTheLimitToo) {
  const auto text = disk.read_text("/proc/self/status", 100);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code(), ErrorCode::unsupported);
}

TEST_F(ReadText, AFileThatShrinksBetweenItsSizeAndItsBytesIsAnError) {
  // Operation 0 opens, 1 asks the size, 2 reads.
  files.set_plan({.truncations = {{.path = path, .size_bytes = 4, .from_operation = 2}}});
  const auto text = files.read_text(path, 100);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(text.error().message(), HasSubstr("expected 10 bytes at offset 0, found 4"));
}

TEST_F(ReadText, EveryFailureOnTheWaySurfaces) {
  std::uint64_t failures = 0;
  while (true) {
    files.set_plan({.faults = {{.index = failures, .error_number = EIO}}});
    const auto text = files.read_text(path, 100);
    if (text) break;
    EXPECT_EQ(text.error().code(), ErrorCode::io_failed);
    EXPECT_THAT(text.error().message(), HasSubstr("data.bin'"));
    ++failures;
  }
  EXPECT_EQ(failures, 4u) << "open, size, the bytes, the end";
}

struct Exists : ReadExactly {};

TEST_F(Exists, IsTrueOfAnythingAndFalseOfNothing) {
  EXPECT_TRUE(*files.exists(path));
  EXPECT_TRUE(*files.exists(temporary.path()));
  EXPECT_FALSE(*files.exists(temporary / "absent"));
  EXPECT_FALSE(*files.exists(path / "below-a-file"));
}

TEST_F(Exists, NotKnowingIsAnErrorAndNotAnAnswer) {
  files.set_plan({.faults = {{.operation = FileOperation::info, .error_number = EACCES}}});
  const auto exists = files.exists(path);
  ASSERT_FALSE(exists.has_value());
  EXPECT_EQ(exists.error().code(), ErrorCode::io_failed);
  EXPECT_THAT(exists.error().message(), HasSubstr("Permission denied"));
}

}  // namespace
}  // namespace moeflux
