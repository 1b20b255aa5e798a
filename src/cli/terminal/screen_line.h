#pragma once
// A prompt and a text on the screen of a terminal: which cell everything is in, and the bytes that bring the
// screen from what it shows to what it should show.
//
// Text wraps at the width of the screen. A code point takes the cells that terminals give it: two for CJK and
// emoji, none for combining marks. What would disturb the screen is shown by name: control characters as ^X,
// invisible ones as <200B>, a mark without a letter on a dotted circle. A row that is full is always followed
// by another one, so the cursor never stands in the column that is not there. If there are more rows than the
// screen has, a window of them around the cursor is shown.
//
// The bytes use only CR, LF, cursor up, down and forward (CSI A, B, C), erase below (CSI J), and, for
// clear(), home and erase all. Pure: nothing is written here. One thread at a time.

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
  std::string_view continuation;  // before the others
  std::string_view text;
  std::size_t cursor = 0;  // in bytes of `text`, on a border
  std::string_view below;  // after the text, from a new row on; may be empty
};

struct ScreenRow {
  std::string bytes;        // as it is written
  std::size_t columns = 0;  // that it fills
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

  // The bytes that show `view`. The first time, the cursor is at the beginning of an empty line.
  std::string draw(const ScreenView& view);

  // The screen has another size; the next draw() draws all anew. Terminals that break long lines again when
  // they become narrower (most do) are believed to have done so; others may keep a few old rows above.
  void resize(ScreenSize size);

  // The bytes that bring the cursor below all that is shown; then draw() begins anew there.
  std::string finish();

  // The bytes that empty the screen; then draw() begins anew at its top.
  std::string clear();

  ScreenSize size() const { return size_; }

 private:
  ScreenLayout window_of(ScreenLayout layout);

  ScreenSize size_;
  ScreenLayout shown_;  // the rows on the screen; none: nothing is drawn yet
  std::size_t window_begin_ = 0;
  bool is_stale_ = false;  // of `shown_` only the cursor's row is right
};

}  // namespace moeflux::cli
