#pragma once
// A minimal terminal for tests: a grid of cells and the few sequences that screen_line.h and word_wrap.h use.
// Anything else is recorded as a problem, and so is a character that reaches the edge of the screen unless
// automatic wrapping is on. One thread at a time.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal/utf8.h"
#include "text/unicode/utf8_stream.h"

namespace moeflux::cli {

class EmulatedScreen {
 public:
  EmulatedScreen(std::size_t columns, std::size_t height) : columns_(columns), height_(height) {
    rows_.resize(height);
  }

  // Takes bytes in pieces of any size; a sequence may be split.
  void write(std::string_view bytes) {
    waiting_ += bytes;
    std::size_t at = 0;
    while (at < waiting_.size()) {
      const std::size_t used = step(std::string_view(waiting_).substr(at));
      if (used == 0) break;
      at += used;
    }
    waiting_.erase(0, at);
  }

  // A row as text. Unwritten cells count as nothing at the end and as a space before text.
  std::string row(std::size_t index) const {
    std::string text;
    for (const std::string& cell : rows_[index]) text += cell.empty() ? " " : cell == kTail ? "" : cell;
    return text;
  }
  std::string all() const {
    std::string text;
    for (std::size_t i = 0; i < height_; ++i) text += row(i) + "\n";
    return text.substr(0, text.find_last_not_of('\n') + 1);
  }
  std::size_t cursor_row() const { return row_; }
  std::size_t cursor_column() const { return column_; }
  bool is_wrap_pending() const { return column_ >= columns_; }
  const std::string& problem() const { return problem_; }
  void set_automatic_wrap(bool is_on) { wraps_ = is_on; }

  // Rewraps every row, as most terminals do; all of ours end with a line feed.
  void resize(std::size_t columns) {
    std::size_t used = rows_.size();
    while (used > row_ + 1 && rows_[used - 1].empty()) --used;
    std::vector<Row> broken;
    std::size_t cursor_row = 0, cursor_column = 0;
    for (std::size_t i = 0; i < used; ++i) {
      broken.emplace_back();
      const std::size_t end = std::max(rows_[i].size(), i == row_ ? column_ : 0);
      rows_[i].resize(end);
      for (std::size_t j = 0; j < end; ++j) {
        const bool is_wide = j + 1 < end && rows_[i][j + 1] == kTail;
        if (broken.back().size() + (is_wide ? 2 : 1) > columns) broken.emplace_back();
        if (i == row_ && j == column_) set(cursor_row, cursor_column, broken);
        broken.back().push_back(rows_[i][j]);
        if (is_wide) broken.back().push_back(rows_[i][++j]);
      }
      if (i == row_ && column_ >= end) set(cursor_row, cursor_column, broken);
    }
    columns_ = columns;
    row_ = cursor_row;
    column_ = cursor_column;
    rows_ = std::move(broken);
    while (rows_.size() > height_ && row_ > 0) {
      rows_.erase(rows_.begin());
      --row_;
    }
    rows_.resize(height_);
  }

 private:
  using Row = std::vector<std::string>;
  static constexpr const char* kTail = "\x01tail";  // the second cell of a wide character

  static void set(std::size_t& row, std::size_t& column, const std::vector<Row>& rows) {
    row = rows.size() - 1;
    column = rows.back().size();
  }

  // Widths of the characters that tests use, independent of cell_width().
  static std::size_t width_of(char32_t c) {
    if ((c >= 0x300 && c < 0x370) || c == 0x200D || c == 0xFE0F) return 0;
    return (c >= 0x1100 && c < 0x1160) || (c >= 0x3000 && c < 0xA000) || (c >= 0x1F300 && c < 0x1FA00) ? 2
                                                                                                       : 1;
  }

  std::size_t step(std::string_view bytes) {
    if (bytes[0] == '\x1B') return sequence(bytes);
    if (bytes[0] == '\r') return column_ = 0, 1;
    if (bytes[0] == '\n') return line_feed(), 1;
    std::string clean;
    Utf8Stream stream;
    for (std::size_t i = 0; i < bytes.size() && clean.empty(); ++i) stream.push(bytes.substr(i, 1), clean);
    if (clean.empty()) return 0;
    const CodePoint code_point = code_point_at(clean, 0);
    if (is_control(code_point.value)) problem_ += "a control character; ";
    put(clean.substr(0, code_point.bytes), width_of(code_point.value));
    return code_point.bytes;
  }

  void put(const std::string& character, std::size_t width) {
    if (wraps_ && column_ + width > columns_) {
      line_feed();
      column_ = 0;
    }
    Row& row = rows_[row_];
    if (width == 0) {
      std::size_t before = column_;
      while (before > 0 && row[before - 1] == kTail) --before;
      if (before == 0)
        problem_ += "a mark without a character; ";
      else
        row[before - 1] += character;
      return;
    }
    if (column_ + width > columns_) {
      problem_ += "a character that wraps by itself; ";
      return;
    }
    if (row.size() < column_ + width) row.resize(column_ + width);
    row[column_] = character;
    if (width == 2) row[column_ + 1] = kTail;
    column_ += width;
  }

  void line_feed() {
    if (++row_ < height_) return;
    rows_.erase(rows_.begin());
    rows_.emplace_back();
    row_ = height_ - 1;
  }

  std::size_t sequence(std::string_view bytes) {
    const std::size_t final = bytes.size() < 3 ? bytes.npos : bytes.find_first_not_of("0123456789;?", 2);
    if (final == bytes.npos) return 0;
    const std::string parameters(bytes.substr(2, final - 2));
    const auto count = [&] { return parameters.empty() ? std::size_t{1} : std::stoul(parameters); };
    switch (bytes[final]) {
      case 'A': row_ -= std::min(row_, count()); break;
      case 'B': row_ = std::min(height_ - 1, row_ + count()); break;
      case 'C': column_ = std::min(columns_ - 1, column_ + count()); break;
      case 'H': row_ = column_ = 0; break;
      case 'J': erase(parameters == "2"); break;
      case 'K': erase_to_end(); break;
      case 'h':
      case 'l': brackets_pastes_ = bytes[final] == 'h'; break;
      default: problem_ += "the sequence " + std::string(bytes.substr(1, final)) + "; ";
    }
    return final + 1;
  }

  void erase(bool all) {
    if (is_wrap_pending()) problem_ += "erasing where the wrap is pending; ";
    Row& row = rows_[row_];
    if (all) row.clear();
    row.resize(std::min(row.size(), column_));
    for (std::size_t i = all ? 0 : row_ + 1; i < height_; ++i) rows_[i].clear();
  }

  void erase_to_end() {
    if (is_wrap_pending()) problem_ += "erasing where the wrap is pending; ";
    rows_[row_].resize(std::min(rows_[row_].size(), column_));
  }

  std::size_t columns_, height_;
  bool wraps_ = false;
  std::vector<Row> rows_;
  std::size_t row_ = 0, column_ = 0;
  std::string waiting_, problem_;
  bool brackets_pastes_ = false;

 public:
  bool brackets_pastes() const { return brackets_pastes_; }
};

}  // namespace moeflux::cli
