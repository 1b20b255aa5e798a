#include "io/testing/faulty_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using test::States;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

struct FaultyFiles : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  std::filesystem::path path = temporary.write("data.bin", "0123456789");
  std::array<std::byte, 10> out;

  std::unique_ptr<ReadFile> open() {
    auto file = files.open_read(path);
    EXPECT_TRUE(file) << file.error().message();
    return *std::move(file);
  }
};

using FaultPlanFaults = FaultyFiles;

TEST_F(FaultPlanFaults, FailOnlyTheOperationOfTheGivenIndex) {
  const auto file = open();
  files.set_plan({.faults = {{.index = 1}}});
  EXPECT_TRUE(file->read_some(0, out));
  EXPECT_FALSE(file->size());
  EXPECT_TRUE(file->size());
}

TEST_F(FaultPlanFaults, CountOnlyOperationsOfTheGivenKind) {
  const auto file = open();
  files.set_plan({.faults = {{.operation = FileOperation::read, .index = 1}}});
  EXPECT_TRUE(file->size());
  EXPECT_TRUE(file->read_some(0, out));
  EXPECT_TRUE(file->size());
  EXPECT_FALSE(file->read_some(0, out));
  EXPECT_TRUE(file->read_some(0, out));
}

TEST_F(FaultPlanFaults, CountOnlyOperationsOnTheGivenFile) {
  temporary.write("other.bin", "x");
  files.set_plan({.faults = {{.file_name = "other.bin"}}});
  EXPECT_TRUE(files.info(path));
  EXPECT_FALSE(files.info(temporary / "other.bin"));
  EXPECT_TRUE(files.info(temporary / "other.bin"));
}

TEST_F(FaultPlanFaults, CanFailAllLaterOperations) {
  files.set_plan({.faults = {{.operation = FileOperation::info, .index = 1, .and_all_later = true}}});
  EXPECT_TRUE(files.info(path));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(files.info(path));
  files.set_plan({});
  EXPECT_TRUE(files.info(path));
}

TEST_F(FaultPlanFaults, HaveTheErrorCodeOfTheirErrno) {
  const std::vector<std::pair<int, ErrorCode>> expected = {
      {EIO, ErrorCode::io_failed},        {ENOSPC, ErrorCode::no_space},  {EDQUOT, ErrorCode::no_space},
      {ENOMEM, ErrorCode::out_of_memory}, {ENOENT, ErrorCode::not_found}, {EACCES, ErrorCode::io_failed},
  };
  for (const auto& [error_number, code] : expected) {
    files.set_plan({.faults = {{.error_number = error_number}}});
    const auto info = files.info(path);
    ASSERT_FALSE(info);
    EXPECT_EQ(info.error().code(), code);
    EXPECT_THAT(info, States("info", path.native(), std::generic_category().message(error_number)));
  }
}

TEST_F(FaultPlanFaults, PreventTheOperation) {
  files.set_plan({.faults = {{.and_all_later = true}}});
  EXPECT_FALSE(files.create(path));
  EXPECT_FALSE(files.remove_all(path));
  EXPECT_FALSE(files.rename(path, temporary / "moved"));
  EXPECT_FALSE(files.make_directory(temporary / "made"));
  EXPECT_FALSE(files.list(temporary.path()));
  EXPECT_FALSE(files.sync_directory(temporary.path()));
  EXPECT_FALSE(files.free_bytes(path));
  EXPECT_FALSE(files.open_read(path));
  EXPECT_EQ(temporary.read("data.bin"), "0123456789");
  EXPECT_EQ(*disk.list(temporary.path()), std::vector<std::string>{"data.bin"});
}

using FaultPlanReads = FaultyFiles;

TEST_F(FaultPlanReads, CanBeShort) {
  const auto file = open();
  files.set_plan({.longest_read_bytes = 4});
  EXPECT_EQ(*file->read_some(0, out), 4u);
  EXPECT_EQ(*file->read_some(8, out), 2u);
}

TEST_F(FaultPlanReads, EndAtTheTruncation) {
  const auto file = open();
  EXPECT_EQ(*file->size(), 10u);
  files.set_plan({.truncations = {{.path = path, .size_bytes = 6}}});
  EXPECT_EQ(*file->size(), 6u);
  EXPECT_EQ(files.info(path)->size_bytes, 6u);
  EXPECT_EQ(*file->read_some(2, out), 4u);
  EXPECT_EQ(*file->read_some(6, out), 0u);
  EXPECT_EQ(*file->read_some(9, out), 0u);
  EXPECT_EQ(*open()->size(), 6u);
}

TEST_F(FaultPlanReads, AreCompleteBeforeTheTruncation) {
  const auto file = open();
  files.set_plan({.truncations = {{.path = path, .size_bytes = 6, .from_operation = 2}}});
  EXPECT_EQ(*file->read_some(0, out), 10u);
  EXPECT_EQ(*file->size(), 10u);
  EXPECT_EQ(*file->read_some(0, out), 6u);
}

using FaultPlanDisk = FaultyFiles;

TEST_F(FaultPlanDisk, WritesWhatFitsAndThenHasNoSpace) {
  files.set_plan({.disk_bytes = 5});
  const auto file = files.create(temporary / "new");
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_TRUE((*file)->append(bytes_of("abc")));
  EXPECT_EQ(*files.free_bytes(path), 2u);
  const Status appended = (*file)->append(bytes_of("defg"));
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().code(), ErrorCode::no_space);
  EXPECT_THAT(appended, States((temporary / "new").native(), 2, 4, "No space left on device"));
  EXPECT_EQ(temporary.read("new"), "abcde");
  EXPECT_EQ(*files.free_bytes(path), 0u);
  EXPECT_EQ(files.bytes(FileOperation::append), 5u);
}

using FaultyLog = FaultyFiles;

TEST_F(FaultyLog, RecordsOperationPathOffsetAndBytes) {
  const auto file = open();
  EXPECT_EQ(*file->read_some(7, out), 3u);
  files.set_plan({.faults = {{.operation = FileOperation::rename}}});
  EXPECT_FALSE(files.rename(path, temporary / "to"));

  const auto log = files.log();
  ASSERT_EQ(log.size(), 3u);
  EXPECT_EQ(log[0].operation, FileOperation::open_read);
  EXPECT_EQ(log[1].operation, FileOperation::read);
  EXPECT_EQ(log[1].path, path);
  EXPECT_EQ(log[1].offset, 7u);
  EXPECT_EQ(log[1].bytes, 3u);
  EXPECT_FALSE(log[1].failed);
  EXPECT_EQ(log[2].operation, FileOperation::rename);
  EXPECT_EQ(log[2].target, temporary / "to");
  EXPECT_TRUE(log[2].failed);
}

TEST_F(FaultyLog, RecordsFailuresOfTheWrappedFileSystem) {
  EXPECT_FALSE(files.open_read(temporary / "absent"));
  ASSERT_EQ(files.log().size(), 1u);
  EXPECT_TRUE(files.log()[0].failed);
}

TEST_F(FaultyLog, CountsOperationsAndBytesUntilCleared) {
  const auto file = open();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(file->read_some(4, out));
  EXPECT_EQ(files.count(FileOperation::read), 3u);
  EXPECT_EQ(files.bytes(FileOperation::read), 18u);
  EXPECT_EQ(files.count(FileOperation::sync), 0u);
  files.clear_log();
  EXPECT_EQ(files.count(FileOperation::read), 0u);
}

TEST_F(FaultyLog, IsKeptAliveByAnOpenFile) {
  std::unique_ptr<ReadFile> file;
  {
    FaultyFileSystem gone(disk);
    file = *gone.open_read(path);
  }
  EXPECT_EQ(*file->read_some(0, out), 10u);
}

TEST_F(FaultyLog, CountsAndFailsExactlyOnceAcrossThreads) {
  constexpr int kThreads = 4;
  constexpr int kReads = 250;
  const auto file = open();
  files.set_plan({.faults = {{.operation = FileOperation::read, .index = 500}}});
  std::array<int, kThreads> failures{};
  {
    std::vector<std::jthread> threads;
    for (int& failed : failures) {
      threads.emplace_back([&] {
        std::array<std::byte, 10> buffer;
        for (int i = 0; i < kReads; ++i) failed += file->read_some(0, buffer) ? 0 : 1;
      });
    }
  }
  EXPECT_EQ(failures[0] + failures[1] + failures[2] + failures[3], 1);
  EXPECT_EQ(files.count(FileOperation::read), 1000u);
  EXPECT_EQ(files.bytes(FileOperation::read), 9990u);
}

}  // namespace
}  // namespace moeflux
