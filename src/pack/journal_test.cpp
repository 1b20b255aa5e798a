#include "pack/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "model/manifest.h"

namespace moeflux {
namespace {

using test::States;

struct Journals : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  Digest identity = digest_of("this pack");
  FinishedFile resident{
      .bytes = 5, .checksums = {1, ~std::uint64_t{0}}, .digests = {digest_of("a"), digest_of("b")}};

  Journal open() {
    auto journal = Journal::open(files, temporary.path(), identity);
    EXPECT_TRUE(journal) << journal.error().message();
    return *std::move(journal);
  }
  std::optional<FinishedFile> finished(Journal& journal, const std::string& name) {
    auto file = journal.finished(name);
    EXPECT_TRUE(file) << file.error().message();
    return *file;
  }
  std::string text() const { return temporary.read("pack.journal"); }
};

using AJournal = Journals;

TEST_F(AJournal, RecordsFinishedFiles) {
  temporary.write("resident.bin", "12345");
  temporary.write("experts/layer_000.bin", "");
  ASSERT_TRUE(open().add("resident.bin", resident));
  Journal second = open();
  ASSERT_TRUE(second.add("experts/layer_000.bin", {}));
  Journal third = open();
  EXPECT_EQ(finished(third, "resident.bin"), resident);
  EXPECT_EQ(finished(third, "experts/layer_000.bin"), FinishedFile{});
  EXPECT_EQ(finished(third, "experts/layer_001.bin"), std::nullopt);
}

TEST_F(AJournal, WritesNothingBeforeItBegins) {
  Journal journal = open();
  EXPECT_FALSE(std::filesystem::exists(temporary / "pack.journal"));
  ASSERT_TRUE(journal.begin());
  EXPECT_EQ(text(), hex_of(identity) + "\n");
  files.clear_log();
  Journal again = open();
  ASSERT_TRUE(again.begin());
  EXPECT_EQ(files.count(FileOperation::create), 0u);
}

TEST_F(AJournal, IgnoresATruncatedLastLine) {
  temporary.write("resident.bin", "12345");
  ASSERT_TRUE(open().add("resident.bin", resident));
  const std::string whole = text();
  const std::size_t header = whole.find('\n') + 1;
  for (const std::size_t left : {header, header + 1, header + 20, whole.size() - 2, whole.size() - 1}) {
    temporary.write("pack.journal", whole.substr(0, left));
    Journal journal = open();
    EXPECT_EQ(finished(journal, "resident.bin"), std::nullopt) << left;
  }
}

TEST_F(AJournal, IgnoresAnInvalidLine) {
  temporary.write("resident.bin", "12345");
  for (const char* line :
       {"{}", "[1]", "resident.bin", R"({"file":"resident.bin","bytes":"5","xxh3":[],"source":[]})",
        R"({"file":"resident.bin","bytes":5,"xxh3":["12"],"source":[]})",
        R"({"file":"resident.bin","bytes":5,"xxh3":[],"source":["xyz"]})",
        R"({"file":"resident.bin","bytes":-5,"xxh3":[],"source":[]})"}) {
    temporary.write("pack.journal", hex_of(identity) + "\n" + line + "\n");
    Journal journal = open();
    EXPECT_EQ(finished(journal, "resident.bin"), std::nullopt) << line;
  }
}

TEST_F(AJournal, RejectsAnotherPack) {
  ASSERT_TRUE(open().begin());
  const auto other = Journal::open(files, temporary.path(), digest_of("another pack"));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), ErrorCode::invalid_argument);
  EXPECT_THAT(other.error().message(), States(temporary.path().string(), "unfinished"));
}

TEST_F(AJournal, IgnoresAFileOfAnotherLength) {
  ASSERT_TRUE(open().add("resident.bin", resident));
  Journal journal = open();
  EXPECT_EQ(finished(journal, "resident.bin"), std::nullopt);  // not there
  temporary.write("resident.bin", "1234");
  EXPECT_EQ(finished(journal, "resident.bin"), std::nullopt);
  temporary.write("resident.bin", "123456");
  EXPECT_EQ(finished(journal, "resident.bin"), std::nullopt);
  temporary.write("resident.bin", "12345");
  EXPECT_EQ(finished(journal, "resident.bin"), resident);
  std::filesystem::remove(temporary / "resident.bin");
  std::filesystem::create_directory(temporary / "resident.bin");
  EXPECT_EQ(finished(journal, "resident.bin"), std::nullopt);
}

TEST_F(AJournal, IsReplacedAtomically) {
  ASSERT_TRUE(open().begin());
  const std::string before = text();
  for (const FileOperation operation :
       {FileOperation::create, FileOperation::append, FileOperation::sync, FileOperation::rename}) {
    files.set_plan({.faults = {{.operation = operation, .error_number = ENOSPC}}});
    Journal journal = open();
    const Status added = journal.add("resident.bin", resident);
    ASSERT_FALSE(added);
    EXPECT_EQ(added.error().code(), ErrorCode::no_space);
    EXPECT_EQ(text(), before);
  }
}

TEST_F(AJournal, IsRemovedWhenThePackIsComplete) {
  Journal journal = open();
  ASSERT_TRUE(journal.begin());
  ASSERT_TRUE(journal.remove());
  EXPECT_FALSE(std::filesystem::exists(temporary / "pack.journal"));
}

}  // namespace
}  // namespace moeflux
