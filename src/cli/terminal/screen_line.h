#pragma once
// Lays out a prompt and a text on a terminal: the cell of every character, and the bytes that update the
// screen.
//
// Text wraps at the width of the screen. A code point takes the cells that terminals give it: two for CJK and
// emoji, none for combining marks. Characters that would disturb the screen are shown by name: control
// characters as ^X, invisible ones as <200B>, a mark without a letter on a dotted circle. A full row is
// always followed by another one, so the cursor is never past the last column. If there are more rows than
// the screen has, a window around the cursor is shown.
//
// The bytes use only CR, LF, cursor up, down and forward (CSI A, B, C), erase below (CSI J), and, for
// clear(), home and erase all. Pure: writes nothing. One thread at a time.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux::cli {

struct ScreenSize {
  std::size_t columns = 80, rows = 24;  // 0 counts as 1
  bool operator==(const ScreenSize&) const = default;
};

struct ScreenView {
  std::string_view prompt;        // before the first line of the text; all of these are valid UTF-8
  std::string_view continuation;  // before later lines
  std::string_view text;
  std::size_t cursor = 0;  // in bytes of `text`, on a boundary
  std::string_view below;  // after the text, on a new row; may be empty
};

struct ScreenRow {
  std::string bytes;        // to write
  std::size_t columns = 0;  // columns that it fills
  bool operator==(const ScreenRow&) const = default;
};

struct ScreenLayout {
  std::vector<ScreenRow> rows;  // at least one; `below` included
  std::size_t cursor_row = 0, cursor_column = 0;
};

ScreenLayout lay_out(const ScreenView& view, std::size_t columns);

class ScreenLine {
 public:
  explicit ScreenLine(ScreenSize size) : size_(size) {}

  // The bytes that show `view`. Requires: at the first call, the cursor is at the start of an empty line.
  std::string draw(const ScreenView& view);

  // The screen was resized; the next draw() redraws everything. Assumes that the terminal rewraps long lines
  // when it becomes narrower, as most do; others may keep a few old rows above.
  void resize(ScreenSize size);

  // The bytes that move the cursor below everything shown; draw() starts anew there.
  std::string finish();

  // The bytes that clear the screen; draw() starts anew at its top.
  std::string clear();

  ScreenSize size() const { return size_; }

 private:
  ScreenLayout window_of(ScreenLayout layout);

  ScreenSize size_;
  ScreenLayout shown_;  // the rows on the screen; none before the first draw
  std::size_t window_begin_ = 0;
  bool is_stale_ = false;  // only the cursor's row of `shown_` is valid
};

}  // namespace moeflux::cli
