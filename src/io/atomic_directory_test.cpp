#include "io/atomic_directory.h"

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

struct AtomicDirectories : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  std::filesystem::path path = temporary / "name";

  bool exists(std::string_view name) const { return std::filesystem::exists(temporary / name); }

  // Writes name/a.txt and name/sub/b.txt.
  Status write_new() {
    MF_TRY(const auto directory, AtomicDirectory::begin(files, path));
    MF_TRY(WriteFile* const a, directory->create("a.txt"));
    MF_TRY_STATUS(a->append(bytes_of("content of a")));
    MF_TRY_STATUS(directory->make_directory("sub"));
    MF_TRY(WriteFile* const b, directory->create("sub/b.txt"));
    MF_TRY_STATUS(b->append(bytes_of("content of b")));
    return directory->commit();
  }

  void expect_complete() const {
    EXPECT_EQ(temporary.read("name/a.txt"), "content of a");
    EXPECT_EQ(temporary.read("name/sub/b.txt"), "content of b");
  }
};

using AtomicDirectoryCommit = AtomicDirectories;

TEST_F(AtomicDirectoryCommit, RenamesThePartialDirectory) {
  const auto directory = AtomicDirectory::begin(files, path);
  ASSERT_TRUE(directory) << directory.error().message();
  EXPECT_EQ((*directory)->path(), temporary / "name.partial");
  EXPECT_TRUE(exists("name.partial"));
  EXPECT_FALSE(exists("name"));
  ASSERT_TRUE((*directory)->commit());
  EXPECT_TRUE(exists("name"));
  EXPECT_FALSE(exists("name.partial"));
}

TEST_F(AtomicDirectoryCommit, SyncsFilesThenDirectoriesThenRenamesThenSyncsTheParent) {
  ASSERT_TRUE(write_new());
  expect_complete();
  std::vector<std::string> operations;
  for (const FileOperationRecord& record : files.log()) {
    operations.push_back(std::string(name_of(record.operation)) + " " +
                         record.path.lexically_relative(temporary.path()).native());
  }
  EXPECT_THAT(
      operations,
      ElementsAre("info name", "remove_all name.partial", "make_directory name.partial",
                  "create name.partial/a.txt", "append name.partial/a.txt", "make_directory name.partial/sub",
                  "create name.partial/sub/b.txt", "append name.partial/sub/b.txt", "sync name.partial/a.txt",
                  "sync name.partial/sub/b.txt", "sync_directory name.partial/sub",
                  "sync_directory name.partial", "info name", "rename name.partial", "sync_directory ."));
}

TEST_F(AtomicDirectoryCommit, LeavesNothingOrTheCompleteDirectoryAfterAnyFailure) {
  for (const int error_number : {EIO, ENOSPC}) {
    std::uint64_t failures = 0;
    while (true) {
      files.clear_log();
      files.set_plan({.faults = {{.index = failures, .error_number = error_number}}});
      const Status written = write_new();
      EXPECT_FALSE(exists("name.partial")) << "operation " << failures;
      if (written) break;

      EXPECT_EQ(written.error().code(), error_number == EIO ? ErrorCode::io_failed : ErrorCode::no_space);
      EXPECT_THAT(written, States(path.native()));
      const bool renamed = files.log().back().path == temporary.path();
      EXPECT_EQ(exists("name"), renamed) << "operation " << failures;
      if (renamed) {
        expect_complete();
        EXPECT_THAT(written, States(path.native(), "complete", "power loss"));
      }
      std::filesystem::remove_all(path);
      ++failures;
    }
    EXPECT_EQ(failures, 15u);
    expect_complete();
    std::filesystem::remove_all(path);
  }
}

TEST_F(AtomicDirectoryCommit, FailsAfterAFailedAppendEvenIfLaterWritesWouldSucceed) {
  {
    files.set_plan({.disk_bytes = 3});
    const auto directory = AtomicDirectory::begin(files, path);
    ASSERT_TRUE(directory) << directory.error().message();
    const auto file = (*directory)->create("a.txt");
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_FALSE((*file)->append(bytes_of("content")));
    files.set_plan({});
    const Status committed = (*directory)->commit();
    ASSERT_FALSE(committed);
    EXPECT_EQ(committed.error().code(), ErrorCode::no_space);
  }
  EXPECT_FALSE(exists("name"));
  EXPECT_FALSE(exists("name.partial"));
}

TEST_F(AtomicDirectoryCommit, RejectsANameThatWasTakenAfterBegin) {
  {
    const auto directory = AtomicDirectory::begin(files, path);
    ASSERT_TRUE(directory) << directory.error().message();
    std::filesystem::create_directory(path);
    const Status committed = (*directory)->commit();
    ASSERT_FALSE(committed);
    EXPECT_EQ(committed.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(committed, States(path.native(), "already exists"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(path));
  EXPECT_FALSE(exists("name.partial"));
}

TEST_F(AtomicDirectoryCommit, IsTheLastCall) {
  const auto directory = AtomicDirectory::begin(files, path);
  ASSERT_TRUE(directory) << directory.error().message();
  ASSERT_TRUE((*directory)->commit());
  // The death test runs the test again in a new process, which aborts before it removes its own temporary
  // directory.
  const auto clean_up = [&] { std::filesystem::remove_all(temporary.path()); };
  EXPECT_CONTRACT((clean_up(), (void)(*directory)->commit()), "commit\\(\\) is called once");
  EXPECT_CONTRACT((clean_up(), (void)(*directory)->create("a")),
                  "create\\(\\) is not called after commit\\(\\)");
}

using AtomicDirectoryDrop = AtomicDirectories;

TEST_F(AtomicDirectoryDrop, RemovesThePartialDirectoryWithItsContents) {
  {
    const auto directory = AtomicDirectory::begin(files, path);
    ASSERT_TRUE(directory) << directory.error().message();
    ASSERT_TRUE((*directory)->create("a.txt"));
    temporary.write("name.partial/deep/er/b.txt", "written without create()");
  }
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
}

using AtomicDirectoryBegin = AtomicDirectories;

TEST_F(AtomicDirectoryBegin, RejectsAnExistingNameAndChangesNothing) {
  temporary.write("name.partial/stale", "kept too");
  for (const char* kept : {"name/kept", "name"}) {
    std::filesystem::remove_all(path);
    temporary.write(kept, "kept");
    const auto directory = AtomicDirectory::begin(files, path);
    ASSERT_FALSE(directory);
    EXPECT_EQ(directory.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(directory, States(path.native(), "already exists", "remove it or choose another name"));
    EXPECT_EQ(temporary.read(kept), "kept");
  }
  EXPECT_EQ(temporary.read("name.partial/stale"), "kept too");
}

TEST_F(AtomicDirectoryBegin, RemovesThePartialDirectoryOfAKilledProcess) {
  temporary.write("name.partial/sub/stale.bin", "stale");
  temporary.write("name.partial/a.txt", "stale and much longer than the new content");
  ASSERT_TRUE(write_new());
  expect_complete();
  EXPECT_FALSE(exists("name/sub/stale.bin"));
}

TEST_F(AtomicDirectoryBegin, IgnoresATrailingSlash) {
  path = temporary / "name/";
  ASSERT_TRUE(write_new());
  expect_complete();
  EXPECT_EQ(*disk.list(temporary.path()), std::vector<std::string>{"name"});
}

TEST_F(AtomicDirectoryBegin, RejectsAPathWithoutANameOrParent) {
  for (const char* path_without : {"", "/", ".", "..", "a/.."}) {
    const auto directory = AtomicDirectory::begin(files, path_without);
    ASSERT_FALSE(directory) << path_without;
    EXPECT_EQ(directory.error().code(), ErrorCode::invalid_argument);
  }
  const auto orphan = AtomicDirectory::begin(files, temporary / "absent/name");
  ASSERT_FALSE(orphan);
  EXPECT_EQ(orphan.error().code(), ErrorCode::not_found);
  EXPECT_THAT(orphan, States("absent/name"));
}

using AtomicDirectoryCreate = AtomicDirectories;

TEST_F(AtomicDirectoryCreate, RejectsPathsOutsideTheDirectory) {
  const auto directory = AtomicDirectory::begin(files, path);
  ASSERT_TRUE(directory) << directory.error().message();
  for (const char* name : {"", ".", "..", "../a", "sub/../../a", "/a", "sub/"}) {
    const auto file = (*directory)->create(name);
    ASSERT_FALSE(file) << name;
    EXPECT_EQ(file.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(file, States("'" + std::string(name) + "'", path.native()));
    EXPECT_FALSE((*directory)->make_directory(name)) << name;
  }
}

TEST_F(AtomicDirectoryCreate, RejectsANameThatIsUsedAlready) {
  const auto directory = AtomicDirectory::begin(files, path);
  ASSERT_TRUE(directory) << directory.error().message();
  const auto first = (*directory)->create("a.txt");
  ASSERT_TRUE(first) << first.error().message();
  ASSERT_TRUE((*first)->append(bytes_of("first")));
  const auto again = (*directory)->create("./a.txt");
  ASSERT_FALSE(again);
  EXPECT_THAT(again, States("name.partial/a.txt", "already created"));
  ASSERT_TRUE((*directory)->commit());
  EXPECT_EQ(temporary.read("name/a.txt"), "first");
}

}  // namespace
}  // namespace moeflux
