#include "io/posix_file_system.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/sizes.h"
#include "base/testing/states.h"
#include "io/direct_io.h"
#include "io/testing/temporary_directory.h"
#include "io/unique_fd.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;

struct Posix : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem files;
};

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

struct PosixOpenRead : Posix {};

TEST_F(PosixOpenRead, ReadsSizeAndBytes) {
  const auto path = temporary.write("a.bin", "hello world");
  const auto file = files.open_read(path);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ((*file)->path(), path);
  EXPECT_EQ(*(*file)->size(), 11u);
  std::array<std::byte, 100> out;
  const auto count = (*file)->read_some(6, out);
  ASSERT_TRUE(count) << count.error().message();
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(out.data()), *count), "world");
  EXPECT_EQ(*(*file)->read_some(11, out), 0u);
  EXPECT_EQ(*(*file)->read_some(5000, out), 0u);
}

TEST_F(PosixOpenRead, NamesAMissingFile) {
  const auto file = files.open_read(temporary / "absent.bin");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::not_found);
  EXPECT_THAT(file, States("open", "absent.bin", "No such file or directory"));
}

TEST_F(PosixOpenRead, ReportsAPathThroughAFileAsNotFound) {
  const auto path = temporary.write("a.bin", "x");
  const auto file = files.open_read(path / "b.bin");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::not_found);
}

TEST_F(PosixOpenRead, RejectsADirectory) {
  const auto file = files.open_read(temporary.path());
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(file, States(temporary.path().native(), "a regular file", "a directory"));
}

TEST_F(PosixOpenRead, RejectsAPipeWithoutWaitingForAWriter) {
  const auto path = temporary / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto file = files.open_read(path);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(file, States(path.native(), "a regular file", "a pipe"));
}

TEST_F(PosixOpenRead, RejectsADevice) {
  const auto file = files.open_read("/dev/zero");
  ASSERT_FALSE(file);
  EXPECT_THAT(file, States("/dev/zero", "a regular file", "a device"));
}

TEST_F(PosixOpenRead, ReportsTheCurrentSizeOfAFileThatChanges) {
  const auto path = temporary.write("a.bin", "hello");
  const auto file = files.open_read(path);
  ASSERT_TRUE(file) << file.error().message();
  std::filesystem::resize_file(path, 2);
  EXPECT_EQ(*(*file)->size(), 2u);
}

TEST_F(PosixOpenRead, RejectsOffsetsPastTheLargest) {
  const auto path = temporary.write("a.bin", "hello");
  const auto file = files.open_read(path);
  ASSERT_TRUE(file) << file.error().message();
  std::array<std::byte, 8> out;
  for (const std::uint64_t offset : {std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max()}) {
    const auto count = (*file)->read_some(offset, out);
    ASSERT_FALSE(count);
    EXPECT_EQ(count.error().code(), ErrorCode::invalid_argument);
    EXPECT_THAT(count, States("a.bin", offset, kLargestFileOffset));
  }
}

TEST_F(PosixOpenRead, ReadsNothingAtTheLargestOffsets) {
  const auto file = files.open_read(temporary.write("a.bin", "hello"));
  ASSERT_TRUE(file) << file.error().message();
  std::array<std::byte, 8> out;
  for (const std::uint64_t offset : {kLargestFileOffset - 20, kLargestFileOffset - 1, kLargestFileOffset}) {
    const auto count = (*file)->read_some(offset, out);
    ASSERT_TRUE(count) << count.error().message();
    EXPECT_EQ(*count, 0u);
  }
}

struct PosixCreate : Posix {};

// Large appends at aligned offsets bypass the page cache, the others go through it.
TEST_F(PosixCreate, CombinesAppendsOfAnySizeInOrder) {
  std::vector<std::byte> all(21 * kMiB + 1234);
  std::uint32_t state = 1;
  for (std::byte& byte : all) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  const auto file = files.create(temporary / "a.bin");
  ASSERT_TRUE(file) << file.error().message();
  std::span<const std::byte> rest = all;
  for (const std::size_t size : {std::size_t{4096}, 2 * kMiB, 5 * kMiB + 4096, kMiB + 1, std::size_t{4095},
                                 6 * kMiB, std::size_t{0}, std::size_t{3}, kMiB - 1}) {
    ASSERT_TRUE((*file)->append(rest.first(size)));
    rest = rest.subspan(size);
  }
  ASSERT_TRUE((*file)->append(rest));
  ASSERT_TRUE((*file)->sync());
  const std::string found = *files.read_text(temporary / "a.bin", 64 * kMiB);
  ASSERT_EQ(found.size(), all.size());
  EXPECT_EQ(std::memcmp(found.data(), all.data(), all.size()), 0);
}

TEST_F(PosixCreate, AppendsTextInOrder) {
  const auto file = files.create(temporary / "a.txt");
  ASSERT_TRUE(file) << file.error().message();
  ASSERT_TRUE((*file)->append(bytes_of("one ")));
  ASSERT_TRUE((*file)->append({}));
  ASSERT_TRUE((*file)->append(bytes_of("two")));
  ASSERT_TRUE((*file)->sync());
  EXPECT_EQ(temporary.read("a.txt"), "one two");
}

TEST_F(PosixCreate, TruncatesAnExistingFile) {
  temporary.write("a.txt", "old and long");
  const auto file = files.create(temporary / "a.txt");
  ASSERT_TRUE(file) << file.error().message();
  ASSERT_TRUE((*file)->append(bytes_of("new")));
  EXPECT_EQ(temporary.read("a.txt"), "new");
}

TEST_F(PosixCreate, DoesNotCreateTheDirectory) {
  const auto file = files.create(temporary / "absent/a.txt");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::not_found);
  EXPECT_THAT(file, States("create", "absent/a.txt", "No such file or directory"));
}

TEST_F(PosixCreate, RejectsAPipeWithoutWaitingForAReader) {
  const auto path = temporary / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto file = files.create(path);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::io_failed);
}

// fsync() of a pipe fails with EINVAL, so a success here would mean that it is not called.
// tests/io/sync_test.py checks the same for regular files and directories.
TEST_F(PosixCreate, SyncReportsTheErrorOfFsync) {
  const auto path = temporary / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  const auto file = files.create(path);
  ASSERT_TRUE(file) << file.error().message();
  const Status synced = (*file)->sync();
  ASSERT_FALSE(synced);
  EXPECT_EQ(synced.error().code(), ErrorCode::io_failed);
  EXPECT_THAT(synced, States("sync", path.native(), "Invalid argument"));
}

TEST_F(PosixCreate, ReportsAFullDiskWithTheOffset) {
  const auto file = files.create("/dev/full");
  if (!file) GTEST_SKIP() << "no /dev/full here: " << file.error().message();
  for (const std::size_t size : {std::size_t{1}, 2 * kMiB}) {
    const Status written = (*file)->append(std::vector<std::byte>(size));
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code(), ErrorCode::no_space);
    EXPECT_THAT(written, States("write", "/dev/full", "offset 0", "No space left on device"));
  }
}

struct PosixInfo : Posix {};

TEST_F(PosixInfo, DistinguishesFilesFromDirectoriesAndFollowsLinks) {
  const auto path = temporary.write("a.txt", "12345");
  std::filesystem::create_symlink(path, temporary / "link");
  for (const char* name : {"a.txt", "link"}) {
    const auto info = files.info(temporary / name);
    ASSERT_TRUE(info) << info.error().message();
    EXPECT_EQ(info->kind, FileKind::regular);
    EXPECT_EQ(info->size_bytes, 5u);
  }
  const auto directory = files.info(temporary.path());
  ASSERT_TRUE(directory) << directory.error().message();
  EXPECT_EQ(directory->kind, FileKind::directory);
  EXPECT_EQ(directory->size_bytes, 0u);
  EXPECT_EQ(files.info("/dev/null")->kind, FileKind::other);
}

TEST_F(PosixInfo, NamesAMissingPath) {
  const auto info = files.info(temporary / "absent");
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().code(), ErrorCode::not_found);
  EXPECT_THAT(info, States("absent", "No such file or directory"));
}

struct PosixList : Posix {};

TEST_F(PosixList, ReturnsSortedNamesWithoutDotEntries) {
  for (const char* name : {"b", "a10", "B", "a2", ".hidden", "sub/inner"}) temporary.write(name, "");
  const auto names = files.list(temporary.path());
  ASSERT_TRUE(names) << names.error().message();
  EXPECT_THAT(*names, ElementsAre(".hidden", "B", "a10", "a2", "b", "sub"));
}

TEST_F(PosixList, NamesAMissingDirectory) {
  const auto names = files.list(temporary / "absent");
  ASSERT_FALSE(names);
  EXPECT_EQ(names.error().code(), ErrorCode::not_found);
  EXPECT_THAT(names, States("list", "absent"));
}

TEST_F(PosixList, RejectsAFile) {
  const auto names = files.list(temporary.write("a.txt", "x"));
  ASSERT_FALSE(names);
  EXPECT_THAT(names, States("a.txt", "Not a directory"));
}

struct PosixMakeDirectory : Posix {};

TEST_F(PosixMakeDirectory, AcceptsAnExistingDirectory) {
  EXPECT_TRUE(files.make_directory(temporary / "d"));
  EXPECT_TRUE(files.make_directory(temporary / "d"));
  EXPECT_TRUE(std::filesystem::is_directory(temporary / "d"));
}

TEST_F(PosixMakeDirectory, DoesNotCreateParents) {
  const Status made = files.make_directory(temporary / "absent/d");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ErrorCode::not_found);
}

TEST_F(PosixMakeDirectory, RejectsAFileOfThatName) {
  const auto path = temporary.write("d", "x");
  const Status made = files.make_directory(path);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ErrorCode::io_failed);
  EXPECT_THAT(made, States(path.native(), "File exists"));
}

struct PosixRename : Posix {};

TEST_F(PosixRename, ReplacesTheTarget) {
  const auto from = temporary.write("from", "new");
  const auto to = temporary.write("to", "old");
  ASSERT_TRUE(files.rename(from, to));
  EXPECT_EQ(temporary.read("to"), "new");
  EXPECT_FALSE(std::filesystem::exists(from));
}

TEST_F(PosixRename, NamesBothPathsInAnError) {
  const Status renamed = files.rename(temporary / "absent", temporary / "to");
  ASSERT_FALSE(renamed);
  EXPECT_EQ(renamed.error().code(), ErrorCode::not_found);
  EXPECT_THAT(renamed, States("rename", (temporary / "absent").native(), (temporary / "to").native(),
                              "No such file or directory"));
}

struct PosixRemoveAll : Posix {};

TEST_F(PosixRemoveAll, RemovesFilesAndDirectoriesAndAcceptsAMissingPath) {
  const auto file = temporary.write("a.txt", "x");
  temporary.write("d/e/f.txt", "x");
  EXPECT_TRUE(files.remove_all(file));
  EXPECT_TRUE(files.remove_all(temporary / "d"));
  EXPECT_TRUE(files.remove_all(temporary / "absent"));
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
}

TEST_F(PosixRemoveAll, AcceptsAPathThroughAFile) {
  EXPECT_TRUE(files.remove_all(temporary.write("a.txt", "x") / "below"));
  EXPECT_EQ(temporary.read("a.txt"), "x");
}

TEST_F(PosixRemoveAll, RemovesALinkAndKeepsItsTarget) {
  temporary.write("kept/a.txt", "x");
  std::filesystem::create_directory_symlink(temporary / "kept", temporary / "link");
  EXPECT_TRUE(files.remove_all(temporary / "link"));
  EXPECT_EQ(temporary.read("kept/a.txt"), "x");
}

struct PosixSyncDirectory : Posix {};

TEST_F(PosixSyncDirectory, RejectsAFile) {
  EXPECT_TRUE(files.sync_directory(temporary.path()));
  const Status synced = files.sync_directory(temporary.write("a.txt", "x"));
  ASSERT_FALSE(synced);
  EXPECT_THAT(synced, States("a.txt", "Not a directory"));
}

struct PosixFreeBytes : Posix {};

TEST_F(PosixFreeBytes, AgreesWithTheStandardLibrary) {
  const auto free = files.free_bytes(temporary.path());
  ASSERT_TRUE(free) << free.error().message();
  const auto space = std::filesystem::space(temporary.path());
  EXPECT_LE(*free, space.capacity);
  EXPECT_NEAR(static_cast<double>(*free), static_cast<double>(space.available),
              1e9);  // other processes write to the disk too
}

TEST_F(PosixFreeBytes, ReportsAMissingPathAsNotFound) {
  const auto free = files.free_bytes(temporary / "absent");
  ASSERT_FALSE(free);
  EXPECT_EQ(free.error().code(), ErrorCode::not_found);
}

}  // namespace
}  // namespace moeflux
