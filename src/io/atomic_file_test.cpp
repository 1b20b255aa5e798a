#include "io/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

struct AtomicFiles : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  std::filesystem::path path = temporary / "name";

  bool partial_exists() const { return std::filesystem::exists(temporary / "name.partial"); }

  // Writes "new" in two appends, so that each of them can be made to fail.
  Status write_new() {
    MF_TRY(const auto file, AtomicFile::begin(files, path));
    MF_TRY_STATUS(file->append(bytes_of("n")));
    MF_TRY_STATUS(file->append(bytes_of("ew")));
    return file->commit();
  }
};

std::vector<std::string> operations_of(const std::vector<FileOperationRecord>& log) {
  std::vector<std::string> operations;
  for (const FileOperationRecord& record : log) {
    operations.push_back(std::string(name_of(record.operation)) + " " + record.path.filename().native());
  }
  return operations;
}

using AtomicFileCommit = AtomicFiles;

TEST_F(AtomicFileCommit, RenamesThePartialFile) {
  const auto file = AtomicFile::begin(files, path);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ((*file)->path(), path);
  ASSERT_TRUE((*file)->append(bytes_of("new")));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(partial_exists());
  ASSERT_TRUE((*file)->commit());
  EXPECT_EQ(temporary.read("name"), "new");
  EXPECT_FALSE(partial_exists());
}

TEST_F(AtomicFileCommit, ReplacesAnExistingFile) {
  temporary.write("name", "old");
  const auto file = AtomicFile::begin(files, path);
  ASSERT_TRUE(file) << file.error().message();
  ASSERT_TRUE((*file)->append(bytes_of("new")));
  EXPECT_EQ(temporary.read("name"), "old");
  ASSERT_TRUE((*file)->commit());
  EXPECT_EQ(temporary.read("name"), "new");
}

TEST_F(AtomicFileCommit, SyncsTheFileBeforeTheRenameAndTheDirectoryAfterIt) {
  ASSERT_TRUE(write_new());
  EXPECT_THAT(
      operations_of(files.log()),
      ElementsAre("create name.partial", "append name.partial", "append name.partial", "sync name.partial",
                  "rename name.partial", "sync_directory " + temporary.path().filename().native()));
  EXPECT_EQ(files.log()[4].target, path);
}

TEST_F(AtomicFileCommit, LeavesTheOldFileOrTheCompleteNewOneAfterAnyFailure) {
  for (const int error_number : {EIO, ENOSPC}) {
    std::uint64_t failures = 0;
    while (true) {
      temporary.write("name", "old");
      files.clear_log();
      files.set_plan({.faults = {{.index = failures, .error_number = error_number}}});
      const Status written = write_new();
      EXPECT_FALSE(partial_exists()) << "operation " << failures;
      if (written) break;

      EXPECT_EQ(written.error().code(), error_number == EIO ? ErrorCode::io_failed : ErrorCode::no_space);
      EXPECT_THAT(written, States(path.native()));
      const bool renamed = files.log().back().operation == FileOperation::sync_directory;
      EXPECT_EQ(temporary.read("name"), renamed ? "new" : "old") << "operation " << failures;
      ++failures;
    }
    EXPECT_EQ(failures, 6u) << "create, append, append, sync, rename, sync_directory";
    EXPECT_EQ(temporary.read("name"), "new");
  }
}

TEST_F(AtomicFileCommit, SaysThatTheFileIsCompleteIfOnlySyncingTheDirectoryFails) {
  files.set_plan({.faults = {{.operation = FileOperation::sync_directory}}});
  const Status written = write_new();
  ASSERT_FALSE(written);
  EXPECT_THAT(written, States(path.native(), "complete", "power loss", "sync_directory"));
  EXPECT_EQ(temporary.read("name"), "new");
}

TEST_F(AtomicFileCommit, FailsAfterAFailedAppendEvenIfLaterWritesWouldSucceed) {
  temporary.write("name", "old");
  {
    files.set_plan({.disk_bytes = 2});
    const auto file = AtomicFile::begin(files, path);
    ASSERT_TRUE(file) << file.error().message();
    const Status appended = (*file)->append(bytes_of("new"));
    ASSERT_FALSE(appended);
    EXPECT_EQ(temporary.read("name.partial"), "ne");
    files.set_plan({});
    EXPECT_FALSE((*file)->append(bytes_of("w")));
    const Status committed = (*file)->commit();
    ASSERT_FALSE(committed);
    EXPECT_EQ(committed.error().code(), ErrorCode::no_space);
    EXPECT_THAT(committed, States(path.native(), 2, 3, "No space left on device"));
  }
  EXPECT_EQ(temporary.read("name"), "old");
  EXPECT_FALSE(partial_exists());
}

// fsync() reports an error only once, so a second sync would succeed.
TEST_F(AtomicFileCommit, FailsAfterAFailedSync) {
  files.set_plan({.faults = {{.operation = FileOperation::sync}}});
  const auto file = AtomicFile::begin(files, path);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_FALSE((*file)->sync());
  EXPECT_FALSE((*file)->commit());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(AtomicFileCommit, CannotReplaceADirectory) {
  temporary.write("name/inside", "kept");
  const Status written = write_new();
  ASSERT_FALSE(written);
  EXPECT_THAT(written, States(path.native(), "Is a directory"));
  EXPECT_EQ(temporary.read("name/inside"), "kept");
  EXPECT_FALSE(partial_exists());
}

TEST_F(AtomicFileCommit, IsTheLastCall) {
  const auto file = AtomicFile::begin(files, path);
  ASSERT_TRUE(file) << file.error().message();
  ASSERT_TRUE((*file)->commit());
  // The death test runs the test again in a new process, which aborts before it removes its own temporary
  // directory.
  const auto clean_up = [&] { std::filesystem::remove_all(temporary.path()); };
  EXPECT_CONTRACT((clean_up(), (void)(*file)->commit()), "commit\\(\\) is called once");
  EXPECT_CONTRACT((clean_up(), (void)(*file)->append({})), "append\\(\\) is not called after commit\\(\\)");
  EXPECT_CONTRACT((clean_up(), (void)(*file)->sync()), "sync\\(\\) is not called after commit\\(\\)");
}

using AtomicFileDrop = AtomicFiles;

TEST_F(AtomicFileDrop, RemovesThePartialFileAndKeepsTheOldFile) {
  temporary.write("name", "old");
  {
    const auto file = AtomicFile::begin(files, path);
    ASSERT_TRUE(file) << file.error().message();
    ASSERT_TRUE((*file)->append(bytes_of("new")));
  }
  EXPECT_EQ(temporary.read("name"), "old");
  EXPECT_FALSE(partial_exists());
}

TEST_F(AtomicFileDrop, RemovesNothingAfterTheCommit) {
  ASSERT_TRUE(write_new());
  EXPECT_EQ(files.count(FileOperation::remove_all), 0u);
}

using AtomicFileBegin = AtomicFiles;

TEST_F(AtomicFileBegin, TruncatesThePartialFileOfAKilledProcess) {
  temporary.write("name.partial", "stale and much longer");
  ASSERT_TRUE(write_new());
  EXPECT_EQ(temporary.read("name"), "new");
}

TEST_F(AtomicFileBegin, RejectsAPathWithoutAFileName) {
  for (const char* path_without : {"", "/", ".", "..", "a/..", "a/"}) {
    const auto file = AtomicFile::begin(files, path_without);
    ASSERT_FALSE(file) << path_without;
    EXPECT_EQ(file.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(file, States("'" + std::string(path_without) + "'"));
  }
  EXPECT_TRUE(files.log().empty());
}

TEST_F(AtomicFileBegin, NamesAMissingDirectory) {
  const auto file = AtomicFile::begin(files, temporary / "absent/name");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::not_found);
  EXPECT_THAT(file, States("absent/name", "create", "absent/name.partial", "No such file or directory"));
}

TEST(WriteFileAtomically, WritesTheWholeFile) {
  TemporaryDirectory temporary;
  PosixFileSystem files;
  ASSERT_TRUE(write_file_atomically(files, temporary / "name", bytes_of("content")));
  ASSERT_TRUE(write_file_atomically(files, temporary / "empty", {}));
  EXPECT_EQ(temporary.read("name"), "content");
  EXPECT_EQ(std::filesystem::file_size(temporary / "empty"), 0u);
  EXPECT_EQ(*files.list(temporary.path()), (std::vector<std::string>{"empty", "name"}));
}

TEST(WriteFileAtomically, SyncsTheCurrentDirectoryForARelativeName) {
  const std::filesystem::path before = std::filesystem::current_path();
  TemporaryDirectory temporary;
  std::filesystem::current_path(temporary.path());
  PosixFileSystem disk;
  FaultyFileSystem files(disk);
  const Status written = write_file_atomically(files, "name", bytes_of("content"));
  std::filesystem::current_path(before);
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_EQ(files.log().back().operation, FileOperation::sync_directory);
  EXPECT_EQ(files.log().back().path, ".");
}

}  // namespace
}  // namespace moeflux
