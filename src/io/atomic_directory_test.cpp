#include "io/atomic_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "base/expect_contract.h"
#include "io/faulty_file_system.h"
#include "io/posix_file_system.h"
#include "io/temporary_directory.h"

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

struct AtomicDirectories : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  std::filesystem::path path = temporary / "name";

  bool exists(std::string_view name) const { return std::filesystem::exists(temporary / name); }

  // name/a.txt and name/sub/b.txt.
  Status write_new() {
    MF_TRY(const auto directory, AtomicDirectory::begin(files, path));
    MF_TRY(WriteFile* const a, directory->create("a.txt"));
    MF_TRY_STATUS(a->append(bytes_of("content of a")));
    MF_TRY_STATUS(directory->make_directory("sub"));
    MF_TRY(WriteFile* const b, directory->create("sub/b.txt"));
    MF_TRY_STATUS(b->append(bytes_of("content of b")));
    return directory->commit();
  }

  void expect_whole() const {
    EXPECT_EQ(temporary.read("name/a.txt"), "content of a");
    EXPECT_EQ(temporary.read("name/sub/b.txt"), "content of b");
  }
};

using AtomicDirectoryCommit = AtomicDirectories;

TEST_F(AtomicDirectoryCommit, GivesTheDirectoryItsName) {
  const auto directory = AtomicDirectory::begin(files, path);
  ASSERT_TRUE(directory) << directory.error().message();
  EXPECT_EQ((*directory)->path(), temporary / "name.partial");
  EXPECT_TRUE(exists("name.partial"));
  EXPECT_FALSE(exists("name"));
  ASSERT_TRUE((*directory)->commit());
  EXPECT_TRUE(exists("name"));
  EXPECT_FALSE(exists("name.partial"));
}

TEST_F(AtomicDirectoryCommit, SyncsContentsThenNamesThenRenamesThenSyncsTheParent) {
  ASSERT_TRUE(write_new());
  expect_whole();
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

TEST_F(AtomicDirectoryCommit, FailingAnyOperationLeavesNothingOrTheWholeDirectory) {
  for (const int error_number : {EIO, ENOSPC}) {
    std::uint64_t failures = 0;
    while (true) {
      files.clear_log();
      files.set_plan({.faults = {{.index = failures, .error_number = error_number}}});
      const Status written = write_new();
      EXPECT_FALSE(exists("name.partial")) << "operation " << failures;
      if (written) break;

      EXPECT_EQ(written.error().code(), error_number == EIO ? ErrorCode::io_failed : ErrorCode::no_space);
      EXPECT_THAT(written.error().message(), HasSubstr(path.native()));
      const bool renamed = files.log().back().path == temporary.path();
      EXPECT_EQ(exists("name"), renamed) << "operation " << failures;
      if (renamed) {
        expect_whole();
        EXPECT_THAT(written.error().message(), HasSubstr("is written, but may be lost with the power"));
      }
      std::filesystem::remove_all(path);
      ++failures;
    }
    EXPECT_EQ(failures, 15u);
    expect_whole();
    std::filesystem::remove_all(path);
  }
}

TEST_F(AtomicDirectoryCommit, FailsWhenAnAppendHasFailedHoweverTheDiskRecovers) {
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

TEST_F(AtomicDirectoryCommit, RefusesANameThatWasTakenMeanwhile) {
  {
    const auto directory = AtomicDirectory::begin(files, path);
    ASSERT_TRUE(directory) << directory.error().message();
    std::filesystem::create_directory(path);
    const Status committed = (*directory)->commit();
    ASSERT_FALSE(committed);
    EXPECT_EQ(committed.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(committed.error().message(), HasSubstr("name' exists already"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(path));
  EXPECT_FALSE(exists("name.partial"));
}

TEST_F(AtomicDirectoryCommit, ComesOnce) {
  const auto directory = AtomicDirectory::begin(files, path);
  ASSERT_TRUE(directory) << directory.error().message();
  ASSERT_TRUE((*directory)->commit());
  // The process that breaks the promise has a temporary directory of its own and dies before it removes it.
  const auto clean_up = [&] { std::filesystem::remove_all(temporary.path()); };
  EXPECT_CONTRACT((clean_up(), (void)(*directory)->commit()), "a directory is committed once");
  EXPECT_CONTRACT((clean_up(), (void)(*directory)->create("a")),
                  "nothing is created in a directory after its commit");
}

using AtomicDirectoryDrop = AtomicDirectories;

TEST_F(AtomicDirectoryDrop, RemovesThePartialWithAllThatIsInIt) {
  {
    const auto directory = AtomicDirectory::begin(files, path);
    ASSERT_TRUE(directory) << directory.error().message();
    ASSERT_TRUE((*directory)->create("a.txt"));
    temporary.write("name.partial/deep/er/b.txt", "written past the directory");
  }
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
}

using AtomicDirectoryBegin = AtomicDirectories;

TEST_F(AtomicDirectoryBegin, RefusesANameThatExistsAndChangesNothing) {
  temporary.write("name.partial/stale", "kept too");
  for (const char* kept : {"name/kept", "name"}) {
    std::filesystem::remove_all(path);
    temporary.write(kept, "kept");
    const auto directory = AtomicDirectory::begin(files, path);
    ASSERT_FALSE(directory);
    EXPECT_EQ(directory.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(directory.error().message(),
                HasSubstr("name' exists already; remove it or choose another name"));
    EXPECT_EQ(temporary.read(kept), "kept");
  }
  EXPECT_EQ(temporary.read("name.partial/stale"), "kept too");
}

TEST_F(AtomicDirectoryBegin, RemovesThePartialOfAKilledRun) {
  temporary.write("name.partial/sub/stale.bin", "stale");
  temporary.write("name.partial/a.txt", "stale and much longer than the new content");
  ASSERT_TRUE(write_new());
  expect_whole();
  EXPECT_FALSE(exists("name/sub/stale.bin"));
}

TEST_F(AtomicDirectoryBegin, ASlashAtTheEndIsTheSameName) {
  path = temporary / "name/";
  ASSERT_TRUE(write_new());
  expect_whole();
  EXPECT_EQ(*disk.list(temporary.path()), std::vector<std::string>{"name"});
}

TEST_F(AtomicDirectoryBegin, NeedsANameAndAParent) {
  for (const char* path_without : {"", "/", ".", "..", "a/.."}) {
    const auto directory = AtomicDirectory::begin(files, path_without);
    ASSERT_FALSE(directory) << path_without;
    EXPECT_EQ(directory.error().code(), ErrorCode::invalid_argument);
  }
  const auto orphan = AtomicDirectory::begin(files, temporary / "absent/name");
  ASSERT_FALSE(orphan);
  EXPECT_EQ(orphan.error().code(), ErrorCode::not_found);
  EXPECT_THAT(orphan.error().message(), HasSubstr("absent/name"));
}

using AtomicDirectoryCreate = AtomicDirectories;

TEST_F(AtomicDirectoryCreate, RefusesNamesThatLeadOutOfIt) {
  const auto directory = AtomicDirectory::begin(files, path);
  ASSERT_TRUE(directory) << directory.error().message();
  for (const char* name : {"", ".", "..", "../a", "sub/../../a", "/a", "sub/"}) {
    const auto file = (*directory)->create(name);
    ASSERT_FALSE(file) << name;
    EXPECT_EQ(file.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(file.error().message(), HasSubstr("expected a name inside it"));
    EXPECT_FALSE((*directory)->make_directory(name)) << name;
  }
}

TEST_F(AtomicDirectoryCreate, RefusesANameThatIsBeingWritten) {
  const auto directory = AtomicDirectory::begin(files, path);
  ASSERT_TRUE(directory) << directory.error().message();
  const auto first = (*directory)->create("a.txt");
  ASSERT_TRUE(first) << first.error().message();
  ASSERT_TRUE((*first)->append(bytes_of("first")));
  const auto again = (*directory)->create("./a.txt");
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message(), HasSubstr("a.txt' was created already"));
  ASSERT_TRUE((*directory)->commit());
  EXPECT_EQ(temporary.read("name/a.txt"), "first");
}

}  // namespace
}  // namespace moeflux
