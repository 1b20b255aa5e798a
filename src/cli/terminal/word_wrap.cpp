#include "cli/terminal/word_wrap.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "cli/terminal/cell_width.h"
#include "cli/terminal/utf8.h"

namespace moeflux::cli {
namespace {

constexpr std::size_t kFenceLength = 3;
constexpr std::size_t kMaxListDigits = 9;  // as in CommonMark
constexpr std::string_view kEraseToEnd = "\x1B[K";

bool is_digit(char32_t c) { return c >= U'0' && c <= U'9'; }

utf8proc_category_t category_of(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool opens(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category == UTF8PROC_CATEGORY_PS || category == UTF8PROC_CATEGORY_PI;
}

// Closing brackets and quotes, and what ends a clause: 、。！？.
bool closes(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category == UTF8PROC_CATEGORY_PE || category == UTF8PROC_CATEGORY_PF ||
         category == UTF8PROC_CATEGORY_PO;
}

}  // namespace

WordWrap::WordWrap(std::size_t columns) : columns_(columns) {
  MF_REQUIRE(columns > 0, "a terminal has at least one column");
}

std::string WordWrap::write(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint code_point = code_point_at(text, at);
    add(text.substr(at, code_point.bytes), code_point.value, out);
    at += code_point.bytes;
  }
  return out;
}

void WordWrap::resize(std::size_t columns) {
  MF_REQUIRE(columns > 0, "a terminal has at least one column");
  if (columns == columns_) return;
  columns_ = columns;
  column_ = column_ <= columns ? column_ : column_ % columns;  // as terminals break a row again
  word_.clear();
  word_column_ = 0;
}

void WordWrap::add(std::string_view bytes, char32_t code_point, std::string& out) {
  if (code_point == U'\n') return end_line(out);
  read_line_start(code_point);
  if (code_point == U' ') return add_space(1, out);
  if (code_point == U'\t') return add_space(kTabColumns - column_ % kTabColumns, out);

  if (may_break_before(code_point)) begin_word();
  previous_ = code_point;
  const std::size_t width = cell_width(code_point);
  if (width > 0 && column_ + width > columns_) {
    if (is_verbatim() || !wrap(out) || column_ + width > columns_) {
      column_ = 0;  // the terminal breaks the row
      word_.clear();
      word_column_ = 0;
    }
  }
  out += bytes;
  column_ += width;
  if (word_column_ > 0) word_ += bytes;  // a word that begins its row never moves
}

// Outside code, spaces at the end of a full row are not shown: the next row begins with a word.
void WordWrap::add_space(std::size_t count, std::string& out) {
  const std::size_t room = columns_ - std::min(column_, columns_);
  if (is_verbatim() && count > room) {
    out.append(count, ' ');
    column_ = (count - room - 1) % columns_ + 1;  // the terminal breaks the row
    return begin_word();
  }
  const std::size_t shown = std::min(count, room);
  out.append(shown, ' ');
  column_ += shown;
  previous_ = U' ';
  begin_word();
}

void WordWrap::end_line(std::string& out) {
  out += '\n';
  if (line_start_ == LineStart::fence) {
    const bool ends_block =
        is_fence_alone_ && marker_ == open_fence_.character && fence_length_ >= open_fence_.length;
    if (open_fence_.character == 0)
      open_fence_ = {marker_, fence_length_};
    else if (ends_block)
      open_fence_ = {};
  }
  column_ = 0;
  previous_ = 0;
  line_start_ = LineStart::spaces;
  indent_ = marker_length_ = fence_length_ = 0;
  marker_ = 0;
  is_fence_alone_ = true;
  begin_word();
}

void WordWrap::begin_word() {
  word_.clear();
  word_column_ = column_;
  grapheme_state_ = 0;
}

bool WordWrap::wrap(std::string& out) {
  const std::size_t indent = hanging_indent();
  if (word_column_ <= indent) return false;
  const std::size_t word_width = column_ - word_column_;
  if (word_width > 0) fmt::format_to(std::back_inserter(out), "\r\x1B[{}C{}", word_column_, kEraseToEnd);
  out += '\n';
  out.append(indent, ' ');
  out += word_;
  word_column_ = indent;
  column_ = indent + word_width;
  return true;
}

// Follows the beginning of a line: spaces, then a list marker ("- ", "* ", "+ ", "12. ", "3) ") or a fence
// (```, ~~~).
void WordWrap::read_line_start(char32_t c) {
  const bool is_blank = c == U' ' || c == U'\t';
  switch (line_start_) {
    case LineStart::spaces:
      if (is_blank) break;
      indent_ = column_;
      marker_ = c;
      marker_length_ = fence_length_ = 1;
      line_start_ = c == U'-' || c == U'*' || c == U'+' || c == U'`' || c == U'~' || is_digit(c)
                        ? LineStart::list_marker
                        : LineStart::passed;
      return;
    case LineStart::list_marker:
      if (is_blank && !is_digit(marker_) && marker_ != U'`' && marker_ != U'~') {
        indent_ = column_ + 1;
        line_start_ = LineStart::passed;
      } else if ((marker_ == U'`' || marker_ == U'~') && c == marker_) {
        if (++fence_length_ == kFenceLength) line_start_ = LineStart::fence;
      } else if (is_digit(marker_) && marker_length_ < kMaxListDigits + 1 &&
                 (is_digit(c) || c == U'.' || c == U')')) {
        ++marker_length_;
        if (!is_digit(c)) marker_ = U'-';  // a space makes a marker of it
      } else {
        line_start_ = LineStart::passed;
      }
      return;
    case LineStart::fence: return read_fence(c);
    case LineStart::passed: return;
  }
}

// A fence may be longer than kFenceLength; then only one that is at least as long ends its block. ```code```
// within one line is no fence.
void WordWrap::read_fence(char32_t c) {
  if (c == marker_ && previous_ == marker_ && is_fence_alone_) {
    ++fence_length_;
  } else if (c == U'`' && marker_ == U'`') {
    line_start_ = LineStart::passed;
  } else if (c != U' ' && c != U'\t') {
    is_fence_alone_ = false;
  }
}

bool WordWrap::may_break_before(char32_t c) {
  if (previous_ == 0 || previous_ == U' ') return false;  // the word has begun already
  if (!utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous_),
                                        static_cast<utf8proc_int32_t>(c), &grapheme_state_))
    return false;
  const bool is_between_wide = cell_width(previous_) == 2 || cell_width(c) == 2;
  return is_between_wide && !opens(previous_) && !closes(c);
}

// A deep indent would leave no room for words.
std::size_t WordWrap::hanging_indent() const { return indent_ <= columns_ / 2 ? indent_ : 0; }

}  // namespace moeflux::cli
