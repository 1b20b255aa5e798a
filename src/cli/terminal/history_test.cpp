#include "cli/terminal/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/testing/states.h"
#include "cli/terminal/entry.h"

namespace moeflux::cli {
namespace {

using test::States;

using testing::ElementsAre;
using testing::IsEmpty;

struct HistoryFile : testing::Test {
  HistoryFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "moeflux-XXXXXX").native();
    folder = ::mkdtemp(pattern.data());
    path = folder / "history";
  }
  ~HistoryFile() override { std::filesystem::remove_all(folder); }

  void write(std::string_view bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
  std::string read() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder, path;
};

TEST(History, DropsRepetitionsEmptyEntriesAndTheOldest) {
  History history(3);
  for (const char* entry : {"a", "a", "", "b", "a", "c", "c"}) history.add(entry);
  EXPECT_THAT(history.entries(), ElementsAre("b", "a", "c"));
}

TEST(History, IsBoundedInBytes) {
  History history;
  history.add(std::string(kMaxHistoryEntryBytes + 1, 'x'));
  EXPECT_THAT(history.entries(), IsEmpty());
  for (std::size_t i = 0; i < 12; ++i)
    history.add(std::to_string(i) + std::string(kMaxHistoryEntryBytes - 10, 'x'));
  EXPECT_EQ(history.entries().size(), 8u);
}

TEST(History, WalksToTheOldestAndBackToTheDraft) {
  History history;
  history.add("one");
  history.add("two");
  HistoryWalk walk(history);
  EXPECT_EQ(walk.newer(), std::nullopt);
  EXPECT_EQ(walk.older("draft"), "two");
  EXPECT_EQ(walk.older("two, edited"), "one");
  EXPECT_EQ(walk.older("one"), std::nullopt);
  EXPECT_EQ(walk.newer(), "two");
  EXPECT_EQ(walk.newer(), "draft");
  EXPECT_EQ(walk.newer(), std::nullopt);
}

TEST_F(HistoryFile, RestoresSavedEntries) {
  History saved;
  for (const char* entry : {"plain", "two\nlines\n", "back\\slash \\n", "\u6F22\U0001F600"}) saved.add(entry);
  ASSERT_TRUE(saved.save(path));
  EXPECT_EQ(read(), "plain\ntwo\\nlines\\n\nback\\\\slash \\\\n\n\u6F22\U0001F600\n");
  History loaded;
  ASSERT_TRUE(loaded.load(path));
  EXPECT_EQ(loaded.entries(), saved.entries());
}

TEST_F(HistoryFile, IsReadableByItsOwnerOnly) {
  write("readable for all");
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  History history;
  history.add("secret");
  ASSERT_TRUE(history.save(path));
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(read(), "secret\n");
}

TEST_F(HistoryFile, MayBeMissing) {
  History history;
  EXPECT_TRUE(history.load(path));
  EXPECT_THAT(history.entries(), IsEmpty());
}

TEST_F(HistoryFile, MayBeDamaged) {
  using namespace std::string_literals;
  write("good\n\xFF\xFE\x1B[2J\0\n\\\nlast without end\\q"s);
  History history;
  ASSERT_TRUE(history.load(path));
  EXPECT_THAT(history.entries(), ElementsAre("good", "\uFFFD\uFFFD[2J", "\\", "last without end\\q"));
}

TEST_F(HistoryFile, IsReadFromItsEndIfTooLong) {
  std::ofstream file(path, std::ios::binary);
  const std::string line(1000, 'x');
  for (std::size_t i = 0; i < 20'000; ++i) file << i << line << '\n';
  file.close();
  History history(5);
  ASSERT_TRUE(history.load(path));
  ASSERT_EQ(history.entries().size(), 5u);
  EXPECT_EQ(history.entries().back(), "19999" + line);
}

TEST_F(HistoryFile, IsRejectedIfNotAFile) {
  std::filesystem::create_directory(path);
  History history;
  const Status loaded = history.load(path);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded, States("regular file"));
  EXPECT_FALSE(history.save(path));
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(history.load(path)) << "a pipe that nobody writes to is not waited for";
  EXPECT_FALSE(history.save(path));
}

TEST(Entry, ContinuesAfterABackslash) {
  EXPECT_EQ(entry_state("text"), EntryState::complete);
  EXPECT_EQ(entry_state(""), EntryState::complete);
  EXPECT_EQ(entry_state("text\\"), EntryState::ends_in_backslash);
  EXPECT_EQ(entry_state("\\"), EntryState::ends_in_backslash);
  EXPECT_EQ(entry_state("text\\\\"), EntryState::complete) << "two are a backslash";
}

TEST(Entry, ContinuesInsideABlock) {
  EXPECT_EQ(entry_state("\"\"\"one"), EntryState::in_block);
  EXPECT_EQ(entry_state("\"\"\"one\\"), EntryState::in_block);
  EXPECT_EQ(entry_state("\"\"\"one\ntwo\"\"\""), EntryState::complete);
  EXPECT_EQ(entry_state("say \"\"\""), EntryState::complete);
}

TEST(Entry, DropsTheQuotesOfABlock) {
  EXPECT_EQ(entry_content("\"\"\"one\ntwo\"\"\""), "one\ntwo");
  EXPECT_EQ(entry_content("\"\"\"\none\n\"\"\""), "one");
  EXPECT_EQ(entry_content("\"\"\"one\"\"\" more"), "one more");
  EXPECT_EQ(entry_content("\"\"\"open"), "open");
  EXPECT_EQ(entry_content("plain \"text\""), "plain \"text\"");
}

}  // namespace
}  // namespace moeflux::cli
