#pragma once
// Breaks a text between words while it streams to a terminal.
//
// Every piece is shown as soon as it arrives. When a word turns out to be too long for the rest of its row,
// it is erased there and written again on the next row. Rows also break between wide characters, but not
// before closing punctuation. A word that is longer than a row is left to the terminal, which breaks it at
// the edge, so a copied URL stays in one piece. Lines of a fenced code block are not wrapped, for the same
// reason. Rows of a list item continue below the text of the item.
//
// The output contains, besides the text, LF (which returns to the first column), CR, cursor forward (CSI C)
// and erase to the end of the row (CSI K). Returns bytes and writes nothing. One thread at a time.

#include <cstddef>
#include <string>
#include <string_view>

namespace moeflux::cli {

class WordWrap {
 public:
  // The cursor is at the beginning of an empty row. Requires: columns > 0.
  explicit WordWrap(std::size_t columns);

  // Returns the bytes that show `text` after the earlier output. Requires: whole code points of valid UTF-8
  // without control characters other than LF and TAB.
  std::string write(std::string_view text);

  // The text is complete: a code block that is still open in it does not continue in the next text.
  void end_text() { open_fence_ = {}; }

  // The terminal was resized. The word being written stays where it is.
  void resize(std::size_t columns);

 private:
  // What the beginning of the current line contains so far.
  enum class LineStart { spaces, list_marker, fence, passed };
  // Three or more backticks or tildes that begin or end a code block.
  struct Fence {
    char32_t character = 0;  // 0: none
    std::size_t length = 0;
  };

  void add(std::string_view bytes, char32_t code_point, std::string& out);
  void add_space(std::size_t count, std::string& out);
  void end_line(std::string& out);
  void begin_word();
  // Moves the word to the next row, or starts a row where there is no word yet. Returns false if the word
  // already begins its row.
  bool wrap(std::string& out);
  void read_line_start(char32_t code_point);
  void read_fence(char32_t code_point);
  bool is_verbatim() const { return open_fence_.character != 0 || line_start_ == LineStart::fence; }
  bool may_break_before(char32_t code_point);
  std::size_t hanging_indent() const;

  std::size_t columns_;
  std::size_t column_ = 0;  // cells used in this row; columns_: the row is full

  std::string word_;  // written, and not yet followed by a place to break
  std::size_t word_column_ = 0;
  char32_t previous_ = 0;  // of this line
  int grapheme_state_ = 0;

  LineStart line_start_ = LineStart::spaces;
  std::size_t indent_ = 0;  // of the rows that continue this line
  std::size_t marker_length_ = 0, fence_length_ = 0;
  char32_t marker_ = 0;
  bool is_fence_alone_ = true;  // nothing but spaces follows the fence of this line
  Fence open_fence_;            // of the code block around this line
};

}  // namespace moeflux::cli
