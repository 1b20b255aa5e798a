// Reading a header from a file: how much is read, and the errors when reading fails.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/safetensors/safetensors.h"
#include "source/testing/safetensors_builder.h"

namespace moeflux {
namespace {

using test::States;

struct SafetensorsFile : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  SafetensorsBuilder builder = [] {
    SafetensorsBuilder b;
    b.add("a", Dtype::bf16, {4, 8}).add("b", Dtype::f32, {3});
    return b;
  }();
  std::filesystem::path path = temporary.write("model.safetensors", builder.file());

  std::unique_ptr<ReadFile> open() {
    auto file = files.open_read(path);
    EXPECT_TRUE(file) << file.error().message();
    return *std::move(file);
  }
  // The error message from reading the header of a file with this content.
  std::string refusal(std::string_view content) {
    path = temporary.write("bad.safetensors", content);
    const auto header = read_safetensors_header(*open(), FileId(0));
    if (header) return "no error";
    EXPECT_EQ(header.error().code(), ErrorCode::corrupt_data);
    EXPECT_THAT(header.error().message(), States(path.string()));
    return header.error().message();
  }
};

TEST_F(SafetensorsFile, IsReadFromItsHeaderAlone) {
  const auto header = read_safetensors_header(*open(), FileId(0));
  ASSERT_TRUE(header) << header.error().message();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->header_bytes, 8 + builder.header().size());
  EXPECT_EQ(header->tensors[1].bytes.offset, header->header_bytes + 64);
  EXPECT_EQ(files.bytes(FileOperation::read), header->header_bytes);
}

TEST_F(SafetensorsFile, OfGigabytesReadsOnlyItsHeader) {
  constexpr std::uint64_t kData = 5'000'000'000;
  const std::string json =
      R"({"t": {"dtype": "U8", "shape": [5000000000], "data_offsets": [0, 5000000000]}})";
  path = temporary.write("large.safetensors", safetensors_file(json, ""));
  std::filesystem::resize_file(path, 8 + json.size() + kData);  // a hole
  const auto header = read_safetensors_header(*open(), FileId(0));
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->tensors[0].bytes.size, kData);
  EXPECT_EQ(files.bytes(FileOperation::read), 8 + json.size());
}

TEST_F(SafetensorsFile, IsReadWholeThroughShortReads) {
  files.set_plan({.longest_read_bytes = 3});
  const auto header = read_safetensors_header(*open(), FileId(0));
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->tensors.size(), 2u);
  EXPECT_GT(files.count(FileOperation::read), 10u);
}

TEST_F(SafetensorsFile, ReportsAnyFailedOperation) {
  const auto file = open();
  for (std::uint64_t i = 0; i < 3; ++i) {  // size, length, JSON
    files.set_plan({.faults = {{.index = i}}});
    const auto header = read_safetensors_header(*file, FileId(0));
    ASSERT_FALSE(header) << i;
    EXPECT_EQ(header.error().code(), ErrorCode::io_failed);
    EXPECT_THAT(header.error().message(), States(path.string()));
  }
  files.set_plan({.faults = {{.index = 3}}});
  EXPECT_TRUE(read_safetensors_header(*file, FileId(0)));
}

TEST_F(SafetensorsFile, RejectsAFileThatShrinksWhileRead) {
  const auto file = open();
  for (const std::uint64_t left : {0u, 7u, 8u, 20u}) {
    files.set_plan({.truncations = {{.path = path, .size_bytes = left, .from_operation = 1}}});
    const auto header = read_safetensors_header(*file, FileId(0));
    ASSERT_FALSE(header) << left;
    EXPECT_EQ(header.error().code(), ErrorCode::corrupt_data);
    EXPECT_THAT(header.error().message(), States(path.string()));
  }
}

TEST_F(SafetensorsFile, RejectsAFileWithoutRoomForALength) {
  EXPECT_THAT(refusal(""), States(8, 0));
  EXPECT_THAT(refusal("1234567"), States(7));
}

TEST_F(SafetensorsFile, RejectsALengthBeyondTheEnd) {
  EXPECT_THAT(refusal(raw<std::uint64_t>({3}) + "{}"), States(3, 2));
  EXPECT_THAT(refusal(raw<std::uint64_t>({1})), States(1, 0));
}

TEST_F(SafetensorsFile, RejectsAHugeLengthBeforeAllocating) {
  for (const std::uint64_t length :
       {std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 30, kMaxHeaderBytes + 1}) {
    EXPECT_THAT(refusal(raw<std::uint64_t>({length}) + "{}"), States(length, kMaxHeaderBytes));
    EXPECT_EQ(files.bytes(FileOperation::read), 8u);
    files.clear_log();
  }
}

TEST_F(SafetensorsFile, RejectsAnEmptyHeader) {
  EXPECT_THAT(refusal(raw<std::uint64_t>({0})), States("JSON"));
}

TEST_F(SafetensorsFile, NamesTheTensorThatIsCutOff) {
  const std::string whole = builder.file();
  EXPECT_THAT(refusal(whole.substr(0, whole.size() - 1)), States("'b'", 64, 76, 75));
}

}  // namespace
}  // namespace moeflux
