#include "cli/terminal/word_wrap.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal/cell_width.h"
#include "cli/terminal/testing/emulated_screen.h"
#include "cli/terminal/utf8.h"

namespace moeflux::cli {
namespace {

constexpr std::size_t kHeight = 400;

// A terminal behind a WordWrap. As in a real one, LF returns to the first column.
class Wrapped {
 public:
  explicit Wrapped(std::size_t columns) : wrap_(columns), screen_(columns, kHeight) {
    screen_.set_automatic_wrap(true);
  }
  explicit Wrapped(std::size_t columns, std::string_view text) : Wrapped(columns) { write(text); }

  void write(std::string_view text) {
    for (const char byte : wrap_.write(text)) screen_.write(byte == '\n' ? "\r\n" : std::string(1, byte));
  }
  void resize(std::size_t columns) {
    wrap_.resize(columns);
    screen_.resize(columns);
  }

  // Rows without the spaces at their ends.
  std::string shown() const {
    std::string text;
    for (std::size_t i = 0; i <= screen_.cursor_row(); ++i) {
      const std::string row = screen_.row(i);
      text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
    }
    text.pop_back();
    EXPECT_EQ(screen_.problem(), "");
    return text;
  }

 private:
  WordWrap wrap_;
  EmulatedScreen screen_;
};

std::string shown(std::size_t columns, std::string_view text) { return Wrapped(columns, text).shown(); }

std::vector<std::string> code_points_of(std::string_view text) {
  std::vector<std::string> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = code_point_at(text, at).bytes;
    pieces.emplace_back(text.substr(at, bytes));
    at += bytes;
  }
  return pieces;
}

TEST(WordWrap, LeavesALineThatFitsUnchanged) {
  EXPECT_EQ(WordWrap(20).write("a short line\nand one\n"), "a short line\nand one\n");
  EXPECT_EQ(shown(7, "1234567"), "1234567");
  EXPECT_EQ(shown(7, "1234567\n890"), "1234567\n890");
}

TEST(WordWrap, MovesAWordThatReachesTheEdge) {
  EXPECT_EQ(shown(10, "one two three four"), "one two\nthree four");
  EXPECT_EQ(shown(7, "one two three"), "one two\nthree");
}

TEST(WordWrap, ShowsEveryPieceAtOnce) {
  const std::string text = "The lighthouse keeper, who was old, waved to the dragon.";
  Wrapped wrapped(16);
  std::string so_far;
  for (const char letter : text) {
    wrapped.write({&letter, 1});
    so_far += letter;
    std::string joined = wrapped.shown();
    std::ranges::replace(joined, '\n', ' ');
    EXPECT_EQ(joined, so_far.substr(0, so_far.find_last_not_of(' ') + 1));
  }
}

TEST(WordWrap, WritesAPieceOnceIfItsWordDoesNotMove) {
  WordWrap wrap(40);
  for (const std::string piece : {"a", " wor", "d", " and", " more"}) EXPECT_EQ(wrap.write(piece), piece);
}

TEST(WordWrap, DropsSpacesAtTheEdgeOnly) {
  EXPECT_EQ(shown(5, "12345   678"), "12345\n678");
  EXPECT_EQ(shown(12, "a   b   c"), "a   b   c");
  EXPECT_EQ(shown(5, "12345 \n678"), "12345\n678");
}

TEST(WordWrap, LeavesAWordLongerThanARowToTheTerminal) {
  WordWrap wrap(10);
  const std::string url = "https://example.org/a/long/path";
  EXPECT_EQ(wrap.write(url), url) << "a URL must be copied in one piece";
  EXPECT_EQ(shown(10, "see " + url), "see\nhttps://ex\nample.org/\na/long/pat\nh");
  EXPECT_EQ(shown(10, url + " is it"), "https://ex\nample.org/\na/long/pat\nh is it");
}

TEST(WordWrap, CountsWideCharactersAsTwoCells) {
  EXPECT_EQ(shown(6, "ab 日本"), "ab 日\n本");
  EXPECT_EQ(shown(8, "ab 日本"), "ab 日本");
  EXPECT_EQ(shown(5, "日本語の"), "日本\n語の");
  EXPECT_EQ(shown(3, "👍👍"), "👍\n👍");
}

TEST(WordWrap, DoesNotBeginARowWithClosingPunctuation) {
  EXPECT_EQ(shown(6, "日本語。次"), "日本\n語。次");
  EXPECT_EQ(shown(5, "あ「日本」"), "あ\n「日\n本」");
}

TEST(WordWrap, KeepsMarksWithTheirLetter) {
  const std::string e_acute = "e\xCC\x81";
  EXPECT_EQ(shown(5, "ab c" + e_acute + "d"), "ab\nc" + e_acute + "d");
  EXPECT_EQ(shown(4, "abc" + e_acute), "abc" + e_acute) << "a mark takes no cell";
  Wrapped pieces(5);
  for (const std::string& piece : code_points_of("ab c" + e_acute)) pieces.write(piece);
  EXPECT_EQ(pieces.shown(), "ab c" + e_acute);
}

TEST(WordWrap, DoesNotBreakInsideAGraphemeCluster) {
  const std::string family = "👩\xE2\x80\x8D👧";  // joined by U+200D
  EXPECT_EQ(shown(5, "ab" + family), "ab\n" + family);
}

TEST(WordWrap, ContinuesAListItemBelowItsText) {
  EXPECT_EQ(shown(12, "- one two three\n- four"), "- one two\n  three\n- four");
  EXPECT_EQ(shown(14, "10. one two three"), "10. one two\n    three");
  EXPECT_EQ(shown(13, "  * one two three four"), "  * one two\n    three\n    four");
  EXPECT_EQ(shown(12, "    one two three"), "    one two\n    three");
  EXPECT_EQ(shown(10, "1000 one two"), "1000 one\ntwo") << "a number alone is no marker";
  EXPECT_EQ(shown(10, "-one two three"), "-one two\nthree");
  EXPECT_EQ(shown(8, "        a bc d"), "\na bc d") << "a deep indent would leave no room";
}

TEST(WordWrap, LeavesCodeBlocksToTheTerminal) {
  const std::string code = "```c++\nint answer = 42;\n```\n";
  EXPECT_EQ(WordWrap(10).write(code), code);
  EXPECT_EQ(shown(10, code + "one two three"), "```c++\nint answer\n = 42;\n```\none two\nthree");
  EXPECT_EQ(shown(10, "~~~\n```\none two three\n~~~\none two three"),
            "~~~\n```\none two th\nree\n~~~\none two\nthree");
  EXPECT_EQ(shown(10, "```a``` b\none two three"), "```a``` b\none two\nthree") << "a span is no block";
}

TEST(WordWrap, EndsACodeBlockOnlyAtAFenceAsLongAsItsFirst) {
  EXPECT_EQ(shown(10, "````\n```\none two three\n````\none two three"),
            "````\n```\none two th\nree\n````\none two\nthree");
  EXPECT_EQ(shown(10, "```\none two three\n`````\none two three"),
            "```\none two th\nree\n`````\none two\nthree");
  EXPECT_EQ(shown(10, "```\n```c\none two three"), "```\n```c\none two th\nree") << "this fence opens";
}

TEST(WordWrap, LeavesAnOpenCodeBlockBehindAtTheEndOfItsText) {
  WordWrap wrap(10);
  wrap.write("```\none two three\n");
  EXPECT_EQ(wrap.write("one two three\n"), "one two three\n") << "left to the terminal, which breaks the row";
  wrap.end_text();
  EXPECT_EQ(wrap.write("one two three\n"), WordWrap(10).write("one two three\n"));
  EXPECT_EQ(wrap.write("```\none two three\n"), "```\none two three\n") << "a fence opens a block again";
}

TEST(WordWrap, TellsListItemsFromOtherBeginnings) {
  EXPECT_EQ(shown(12, "+ one two three"), "+ one two\n  three");
  EXPECT_EQ(shown(12, "3) one two three"), "3) one two\n   three");
  EXPECT_EQ(shown(12, "**bold** one two"), "**bold** one\ntwo");
  EXPECT_EQ(shown(12, "--- one two three"), "--- one two\nthree");
  EXPECT_EQ(shown(12, "12.5 one two three"), "12.5 one two\nthree");
  EXPECT_EQ(shown(12, "- 日本 日本 日本"), "- 日本 日本\n  日本");
  EXPECT_EQ(shown(9, "- e\u0301te\u0301 e\u0301te\u0301 a"), "- e\u0301te\u0301 e\u0301te\u0301\n  a")
      << "marks take no cell";
}

TEST(WordWrap, ExpandsTabsToSpaces) {
  EXPECT_EQ(shown(20, "a\tb"), "a       b");
  EXPECT_EQ(shown(10, "a\tbcd"), "a\nbcd");
}

TEST(WordWrap, ContinuesAfterAResize) {
  Wrapped wrapped(20);
  wrapped.write("one two three fo");
  wrapped.resize(10);
  wrapped.write("ur five");
  EXPECT_EQ(wrapped.shown(), "one two th\nree four\nfive");
  wrapped.resize(30);
  wrapped.write(" six");
  EXPECT_EQ(wrapped.shown().substr(wrapped.shown().rfind('\n')), "\nfive six");
}

TEST(WordWrap, SurvivesTheNarrowestTerminals) {
  for (const std::size_t columns : {1U, 2U, 3U})
    for (const std::string text : {"a b", "日本 語", "- a\tb 日", "1. 👩\xE2\x80\x8D👧\n```\nx"}) {
      WordWrap wrap(columns);
      std::string joined;
      for (const std::string& piece : code_points_of(text)) joined += wrap.write(piece);
      EXPECT_FALSE(joined.empty());
    }
}

// The same rows from a simpler rule: each word of a line goes on the row where it fits.
std::string filled(std::size_t columns, const std::vector<std::string>& words) {
  std::string text;
  std::size_t column = 0;
  for (const std::string& word : words) {
    const std::size_t width = word.size();
    if (column > 0 && column + 1 + width > columns) {
      text += '\n';
      column = 0;
    }
    if (column > 0) text += ' ', ++column;
    text += word;
    column += width;
  }
  return text;
}

RC_GTEST_PROP(WordWrap, FillsRowsTheSameHoweverTheTextIsCut, ()) {
  const auto columns = *rc::gen::inRange<std::size_t>(8, 30);
  const auto lengths = *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(1, 8));
  std::vector<std::string> words;
  std::string text;
  for (const std::size_t length : lengths) {
    words.emplace_back(length, static_cast<char>('a' + words.size() % 26));
    text += (text.empty() ? "" : " ") + words.back();
  }
  Wrapped wrapped(columns);
  for (std::size_t at = 0; at < text.size();) {
    const auto bytes = *rc::gen::inRange<std::size_t>(1, 9);
    wrapped.write(std::string_view(text).substr(at, bytes));
    at += bytes;
  }
  RC_ASSERT(wrapped.shown() == filled(columns, words));
}

RC_GTEST_PROP(WordWrap, LosesNothingOfAnyText, ()) {
  const auto columns = *rc::gen::inRange<std::size_t>(2, 24);
  const auto pieces = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("a", "word", " ", "  ", "\n", "- ", "1. ", "日", "。", "e\xCC\x81", "👍",
                                    "`", "```", "longer-than-a-row-of-any-terminal-here"));
  Wrapped wrapped(columns);
  std::string text;
  for (const std::string& piece : pieces) {
    wrapped.write(piece);
    text += piece;
  }
  const auto without_spaces = [](std::string joined) {
    std::erase_if(joined, [](char c) { return c == ' ' || c == '\n'; });
    return joined;
  };
  RC_ASSERT(without_spaces(wrapped.shown()) == without_spaces(text));
}

}  // namespace
}  // namespace moeflux::cli
