#include "cli/terminal/edit_buffer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/terminal/utf8.h"

namespace moeflux::cli {
namespace {

// The text with '|' at the cursor.
std::string shown(const EditBuffer& buffer) {
  std::string text = buffer.text();
  return text.insert(buffer.cursor(), "|");
}

EditBuffer with(std::string_view text) {
  const std::size_t cursor = text.find('|');
  EditBuffer buffer;
  buffer.insert(text.substr(0, cursor));
  const std::string after(text.substr(cursor + 1));
  buffer.insert(after);
  while (buffer.cursor() > cursor) buffer.left();
  return buffer;
}

TEST(EditBuffer, InsertsAtTheCursor) {
  EditBuffer buffer = with("ab|d");
  EXPECT_TRUE(buffer.insert("c"));
  EXPECT_EQ(shown(buffer), "abc|d");
}

TEST(EditBuffer, MovesAndErasesByGraphemeClusters) {
  const std::string accent = "e\u0301", family = "\U0001F469\u200D\U0001F469\u200D\U0001F467",
                    flag = "\U0001F1E9\U0001F1EA";
  EditBuffer buffer;
  buffer.insert(accent + family + flag + flag);
  EXPECT_TRUE(buffer.left());
  EXPECT_EQ(buffer.cursor(), (accent + family + flag).size());
  EXPECT_TRUE(buffer.left());
  EXPECT_TRUE(buffer.erase_before());
  EXPECT_EQ(shown(buffer), accent + "|" + flag + flag);
  EXPECT_TRUE(buffer.erase_after());
  EXPECT_EQ(shown(buffer), accent + "|" + flag);
  EXPECT_TRUE(buffer.erase_before());
  EXPECT_FALSE(buffer.erase_before());
  EXPECT_EQ(shown(buffer), "|" + flag);
}

TEST(EditBuffer, KeepsTheCursorOutsideAClusterMadeByAnInsertion) {
  EditBuffer buffer = with("ab|");
  buffer.home();
  buffer.right();
  EXPECT_TRUE(buffer.insert("\u0301"));
  EXPECT_EQ(shown(buffer), "a\u0301|b");
  EditBuffer joined;
  joined.insert("\U0001F469\U0001F467");
  joined.left();
  joined.insert("\u200D");
  EXPECT_EQ(joined.cursor(), joined.text().size());
}

TEST(EditBuffer, MakesInsertedBytesValid) {
  EditBuffer buffer;
  buffer.insert("a\xFFz\xE2\x82\r\nb\rc");
  EXPECT_EQ(buffer.text(), "a\uFFFDz\uFFFD\nb\nc");
}

TEST(EditBuffer, MovesByWords) {
  EditBuffer buffer = with("one, two |  three");
  EXPECT_TRUE(buffer.word_left());
  EXPECT_EQ(shown(buffer), "one, |two   three");
  EXPECT_TRUE(buffer.word_left());
  EXPECT_EQ(shown(buffer), "|one, two   three");
  EXPECT_FALSE(buffer.word_left());
  EXPECT_TRUE(buffer.word_right());
  EXPECT_EQ(shown(buffer), "one|, two   three");
  buffer.word_right();
  EXPECT_TRUE(buffer.word_right());
  EXPECT_EQ(shown(buffer), "one, two   three|");
  EXPECT_FALSE(buffer.word_right());
}

TEST(EditBuffer, KillsWordsAndYanksThemBack) {
  EditBuffer buffer = with("path/to file|.txt");
  EXPECT_TRUE(buffer.kill_word_before());
  EXPECT_EQ(shown(buffer), "path/to |.txt");
  EXPECT_TRUE(buffer.kill_space_before());
  EXPECT_EQ(shown(buffer), "|.txt");
  buffer.end();
  EXPECT_TRUE(buffer.yank());
  EXPECT_EQ(shown(buffer), ".txtpath/to file|") << "kills that follow each other add up";
  buffer.home();
  EXPECT_TRUE(buffer.kill_word_after());
  EXPECT_EQ(shown(buffer), "|/to file") << "what stands before a word goes with it";
}

TEST(EditBuffer, ActsOnTheLineOfTheCursor) {
  EditBuffer buffer = with("first\nsec|ond\nthird");
  buffer.home();
  EXPECT_EQ(shown(buffer), "first\n|second\nthird");
  buffer.end();
  EXPECT_EQ(shown(buffer), "first\nsecond|\nthird");
  EXPECT_TRUE(buffer.kill_to_line_begin());
  EXPECT_EQ(shown(buffer), "first\n|\nthird");
  EXPECT_TRUE(buffer.kill_to_line_end()) << "at the end of a line it takes the newline";
  EXPECT_EQ(shown(buffer), "first\n|third");
  EXPECT_TRUE(buffer.yank());
  EXPECT_EQ(shown(buffer), "first\nsecond\n|third");
}

TEST(EditBuffer, KeepsTheColumnWhenMovingUpAndDown) {
  EditBuffer buffer = with("\u6F22\u5B57x\ny\nab\u0301cd|");
  EXPECT_FALSE(buffer.line_down());
  EXPECT_TRUE(buffer.line_up());
  EXPECT_EQ(shown(buffer), "\u6F22\u5B57x\ny|\nab\u0301cd");
  EXPECT_TRUE(buffer.line_up());
  EXPECT_EQ(shown(buffer), "\u6F22|\u5B57x\ny\nab\u0301cd");
  EXPECT_FALSE(buffer.line_up());
  EXPECT_TRUE(buffer.line_down());
  EXPECT_TRUE(buffer.line_down());
  EXPECT_EQ(shown(buffer), "\u6F22\u5B57x\ny\na|b\u0301cd");
}

TEST(EditBuffer, TransposesTwoCharacters) {
  EditBuffer buffer = with("a\u0301|b");
  EXPECT_TRUE(buffer.transpose());
  EXPECT_EQ(shown(buffer), "ba\u0301|");
  EXPECT_TRUE(buffer.transpose());
  EXPECT_EQ(shown(buffer), "a\u0301b|");
  EXPECT_FALSE(with("|ab").transpose());
  EXPECT_FALSE(with("a|").transpose());
}

TEST(EditBuffer, UndoesARunOfTypingAtOnce) {
  EditBuffer buffer;
  for (const char* letter : {"a", "b", "c"}) buffer.insert(letter);
  buffer.left();
  for (const char* letter : {"x", "y"}) buffer.insert(letter);
  buffer.kill_to_line_begin();
  EXPECT_EQ(shown(buffer), "|c");
  EXPECT_TRUE(buffer.undo());
  EXPECT_EQ(shown(buffer), "abxy|c");
  EXPECT_TRUE(buffer.undo());
  EXPECT_EQ(shown(buffer), "ab|c");
  EXPECT_TRUE(buffer.undo());
  EXPECT_EQ(shown(buffer), "|");
  EXPECT_FALSE(buffer.undo());
}

TEST(EditBuffer, RejectsATextThatIsTooLong) {
  EditBuffer buffer;
  EXPECT_TRUE(buffer.insert(std::string(kMaxTextBytes - 1, 'a')));
  EXPECT_TRUE(buffer.insert("b"));
  EXPECT_FALSE(buffer.insert("c"));
  EXPECT_EQ(buffer.text().size(), kMaxTextBytes);
  EXPECT_TRUE(buffer.replace_all("short"));
  EXPECT_EQ(shown(buffer), "short|");
}

TEST(EditBuffer, IsFastInALongTextWithoutAscii) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "\u6F22";
  EditBuffer buffer;
  buffer.insert(text);
  EXPECT_TRUE(buffer.word_left());  // with quadratic time this would take minutes
  EXPECT_EQ(buffer.cursor(), 0u);
}

RC_GTEST_PROP(EditBuffer, KeepsItsPromisesUnderAnyCommands, (const std::vector<std::uint8_t>& commands)) {
  using Command = bool (EditBuffer::*)();
  static constexpr Command kCommands[] = {&EditBuffer::left,
                                          &EditBuffer::right,
                                          &EditBuffer::word_left,
                                          &EditBuffer::word_right,
                                          &EditBuffer::home,
                                          &EditBuffer::end,
                                          &EditBuffer::line_up,
                                          &EditBuffer::line_down,
                                          &EditBuffer::erase_before,
                                          &EditBuffer::erase_after,
                                          &EditBuffer::kill_word_before,
                                          &EditBuffer::yank,
                                          &EditBuffer::transpose,
                                          &EditBuffer::kill_word_after,
                                          &EditBuffer::kill_space_before,
                                          &EditBuffer::undo,
                                          &EditBuffer::kill_to_line_end,
                                          &EditBuffer::kill_to_line_begin};
  static constexpr const char* kPieces[] = {"a",      " ",          "\n",         "\u0301",
                                            "\u200D", "\U0001F469", "\U0001F1E9", "\u6F22",
                                            "\u1100", "\u1161",     "\x01",       "\xF0\x9F"};
  EditBuffer buffer;
  for (const std::uint8_t command : commands) {
    const std::string before = buffer.text();
    bool changed;
    if (command < 128) {
      changed = buffer.insert(kPieces[command % std::size(kPieces)]);
    } else {
      changed = (buffer.*kCommands[command % std::size(kCommands)])();
    }
    if (!changed) RC_ASSERT(buffer.text() == before);
    RC_ASSERT(clean_utf8(buffer.text()) == buffer.text());
    RC_ASSERT(border_from(buffer.text(), buffer.cursor()) == buffer.cursor());
    std::size_t border = 0;  // the same without the short cut of border_from
    while (border < buffer.cursor()) border = next_border(buffer.text(), border);
    RC_ASSERT(border == buffer.cursor());
  }
}

}  // namespace
}  // namespace moeflux::cli
