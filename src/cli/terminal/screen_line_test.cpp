#include "cli/terminal/screen_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "cli/terminal/edit_buffer.h"
#include "cli/terminal/testing/emulated_screen.h"

namespace moeflux::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> rows_of(const ScreenLayout& layout) {
  std::vector<std::string> rows;
  for (const ScreenRow& row : layout.rows) rows.push_back(row.bytes);
  return rows;
}

ScreenView view_of(std::string_view text, std::size_t cursor) {
  return {.prompt = "> ", .continuation = ". ", .text = text, .cursor = cursor, .below = {}};
}

TEST(ScreenLayout, WrapsAtTheWidth) {
  const ScreenLayout layout = lay_out(view_of("abcdefghij", 6), 6);
  EXPECT_THAT(rows_of(layout), ElementsAre("> abcd", "efghij", ""));
  EXPECT_EQ(layout.cursor_row, 1u);
  EXPECT_EQ(layout.cursor_column, 2u);
}

TEST(ScreenLayout, AddsARowAfterAFullOne) {
  const ScreenLayout end = lay_out(view_of("abcd", 4), 6);
  EXPECT_THAT(rows_of(end), ElementsAre("> abcd", ""));
  EXPECT_EQ(end.cursor_row, 1u);
  EXPECT_EQ(end.cursor_column, 0u);
  const ScreenLayout middle = lay_out(view_of("abcd\ne", 4), 6);
  EXPECT_THAT(rows_of(middle), ElementsAre("> abcd", "", ". e"));
  EXPECT_EQ(middle.cursor_row, 1u);
}

TEST(ScreenLayout, DoesNotBreakAWideCharacter) {
  const ScreenLayout layout = lay_out(view_of("a\u6F22b", 1), 4);
  EXPECT_THAT(rows_of(layout), ElementsAre("> a", "\u6F22b"));
  EXPECT_EQ(layout.cursor_row, 1u) << "the cursor is where the character is";
  EXPECT_EQ(layout.cursor_column, 0u);
  EXPECT_THAT(
      rows_of(lay_out({.prompt = "", .continuation = "", .text = "\u6F22", .cursor = 0, .below = {}}, 1)),
      ElementsAre("?", ""));
}

TEST(ScreenLayout, CountsNoCellForMarks) {
  const ScreenLayout layout = lay_out(view_of("e\u0301x", 3), 80);
  EXPECT_EQ(layout.cursor_column, 3u);
  EXPECT_THAT(rows_of(lay_out(view_of("abce\u0301", 0), 6)), ElementsAre("> abce\u0301", ""))
      << "a mark stays with a letter in the last column";
}

TEST(ScreenLayout, ShowsInvisibleCharactersByName) {
  EXPECT_THAT(rows_of(lay_out(view_of("\x01\x7F", 1), 80)), ElementsAre("> ^A^?"));
  EXPECT_THAT(rows_of(lay_out(view_of("\u0085\u200B\u202E", 0), 80)), ElementsAre("> <85><200B><202E>"));
  EXPECT_THAT(rows_of(lay_out(view_of("\u0301", 0), 80)), ElementsAre("> \u25CC\u0301"));
  EXPECT_THAT(rows_of(lay_out(view_of("a\tb", 0), 80)), ElementsAre("> a     b"));
  EXPECT_THAT(rows_of(lay_out(view_of("a\tb", 0), 5)), ElementsAre("> a  ", "b"));
}

TEST(ScreenLayout, PutsTheTextBelowOnNewRows) {
  ScreenView view = view_of("ab", 2);
  view.below = "one  two";
  EXPECT_THAT(rows_of(lay_out(view, 6)), ElementsAre("> ab", "one  t", "wo"));
}

TEST(ScreenLine, WritesOnlyNewCharactersAtTheEndOfALine) {
  ScreenLine screen({.columns = 80, .rows = 24});
  (void)screen.draw(view_of("abc", 3));
  EXPECT_EQ(screen.draw(view_of("abcd", 4)), "\r\x1B[5Cd\r\x1B[6C");
}

TEST(ScreenLine, LeavesTheCursorBelowTheText) {
  ScreenLine screen({.columns = 6, .rows = 10});
  EmulatedScreen emulated(6, 10);
  emulated.write(screen.draw(view_of("abcdef", 0)));
  emulated.write(screen.draw(view_of("abcdef", 6)));
  emulated.write(screen.finish() + "next");
  EXPECT_EQ(emulated.all(), "> abcd\nef\nnext");
  EmulatedScreen full(6, 10);
  full.write(screen.draw(view_of("abcd", 4)));
  full.write(screen.finish() + "next");
  EXPECT_EQ(full.all(), "> abcd\nnext") << "no empty row after a full one";
  EXPECT_THAT(emulated.problem() + full.problem(), IsEmpty());
}

TEST(ScreenLine, ClearsTheScreen) {
  ScreenLine screen({.columns = 20, .rows = 5});
  EmulatedScreen emulated(20, 5);
  emulated.write("before\r\n" + screen.draw(view_of("text", 4)));
  emulated.write(screen.clear());
  emulated.write(screen.draw(view_of("text", 4)));
  EXPECT_EQ(emulated.all(), "> text");
}

// A second implementation of the header's rules, for the characters of these tests and without clusters.
struct Expected {
  std::vector<std::string> rows{""};
  std::size_t cursor_row = 0, cursor_column = 0;

  Expected(const std::string& text, std::size_t cursor, std::size_t width) {
    std::size_t column = 0;
    const auto put = [&](std::string_view bytes, std::size_t cells) {
      if (column + cells > width) rows.emplace_back(), column = 0;
      rows.back() += bytes;
      column += cells;
    };
    const auto mark = [&](std::size_t cells) {
      if (column + cells > width) rows.emplace_back(), column = 0;
      cursor_row = rows.size() - 1;
      cursor_column = column;
    };
    put(">", 1), put(" ", 1);
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = code_point_at(text, at);
      const std::size_t cells = c.value == U'\u0301' ? 0 : c.value > 0x1000 ? 2 : 1;
      if (at == cursor) mark(cells);
      if (c.value == U'\n') {
        if (column == width) rows.emplace_back();
        rows.emplace_back(), column = 0;
        put(".", 1), put(" ", 1);
      } else if (c.value == 1) {
        put("^", 1), put("A", 1);
      } else {
        put(std::string_view(text).substr(at, c.bytes), cells);
      }
      at += c.bytes;
    }
    if (cursor == text.size())
      mark(1);
    else if (column == width)
      rows.emplace_back();
  }
};

void require_shown(const EmulatedScreen& emulated, const Expected& expected, std::size_t height) {
  RC_ASSERT(emulated.problem() == "");
  RC_ASSERT(emulated.cursor_row() <= expected.cursor_row);
  const std::size_t first = expected.cursor_row - emulated.cursor_row();
  RC_ASSERT(expected.rows.size() > height || first == 0);
  RC_ASSERT(emulated.cursor_column() == expected.cursor_column);
  RC_ASSERT(!emulated.is_wrap_pending());
  for (std::size_t i = 0; i < height; ++i) {
    RC_ASSERT(emulated.row(i) == (first + i < expected.rows.size() ? expected.rows[first + i] : ""));
  }
}

void edit(EditBuffer& buffer, std::uint8_t choice) {
  static constexpr const char* kPieces[] = {"a",          "b",       " ",    "\n",  "\u6F22",
                                            "\U0001F600", "e\u0301", "\x01", "wxyz"};
  switch (choice % 32) {
    case 0: buffer.left(); break;
    case 1: buffer.word_left(); break;
    case 2: buffer.home(); break;
    case 3: buffer.line_up(); break;
    case 4: buffer.erase_before(); break;
    case 5: buffer.kill_to_line_end(); break;
    case 6: buffer.kill_to_line_begin(); break;
    case 7: buffer.text_end(); break;
    default: buffer.insert(kPieces[choice / 8 % std::size(kPieces)]);
  }
}

RC_GTEST_PROP(ScreenLine, ShowsExactlyTheTextAfterAnyEdits, (const std::vector<std::uint8_t>& choices)) {
  const auto width = *rc::gen::inRange<std::size_t>(2, 30), height = *rc::gen::inRange<std::size_t>(1, 12);
  ScreenLine screen({.columns = width, .rows = height});
  EmulatedScreen emulated(width, height);
  EditBuffer buffer;
  for (const std::uint8_t choice : choices) {
    edit(buffer, choice);
    emulated.write(screen.draw(view_of(buffer.text(), buffer.cursor())));
    require_shown(emulated, Expected(buffer.text(), buffer.cursor(), width), height);
  }
}

RC_GTEST_PROP(ScreenLine, ShowsExactlyTheTextAfterResizes, (const std::vector<std::uint8_t>& choices)) {
  constexpr std::size_t kHeight = 400;
  std::size_t width = 20;
  ScreenLine screen({.columns = width, .rows = kHeight});
  EmulatedScreen emulated(width, kHeight);
  EditBuffer buffer;
  for (const std::uint8_t choice : choices) {
    edit(buffer, choice);
    emulated.write(screen.draw(view_of(buffer.text(), buffer.cursor())));
    if (choice % 5 != 0) continue;
    width = *rc::gen::inRange<std::size_t>(2, 40);
    screen.resize({.columns = width, .rows = kHeight});
    emulated.resize(width);
    emulated.write(screen.draw(view_of(buffer.text(), buffer.cursor())));
    require_shown(emulated, Expected(buffer.text(), buffer.cursor(), width), kHeight);
  }
}

}  // namespace
}  // namespace moeflux::cli
