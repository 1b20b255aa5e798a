#include "cli/terminal/screen_line.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "base/check.h"
#include "cli/terminal/cell_width.h"
#include "cli/terminal/utf8.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kDottedCircle = "\xE2\x97\x8C";
constexpr std::string_view kEraseBelow = "\x1B[J";

bool is_mark(char32_t code_point) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME;
}

class Typesetter {
 public:
  explicit Typesetter(std::size_t columns) : columns_(columns) { layout_.rows.emplace_back(); }

  // `cursor` is a boundary of `text`, or absent.
  void add(std::string_view text, std::optional<std::size_t> cursor, std::string_view continuation) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = next_border(text, at);
      add_cluster(text.substr(at, end - at), cursor == at, continuation);
      at = end;
    }
    if (cursor != text.size()) return;
    end_row();
    mark_cursor();
  }

  void end_row() { make_room(1); }  // a full row is followed by another one
  void new_row() { layout_.rows.emplace_back(); }

  ScreenLayout take() && { return std::move(layout_); }

 private:
  ScreenRow& row() { return layout_.rows.back(); }

  void make_room(std::size_t columns) {
    if (row().columns + columns > columns_) new_row();
  }

  void mark_cursor() {
    layout_.cursor_row = layout_.rows.size() - 1;
    layout_.cursor_column = row().columns;
  }

  void put(std::string_view bytes, std::size_t columns) {
    make_room(columns);
    row().bytes += bytes;
    row().columns += columns;
  }

  // ASCII, cell by cell.
  void put_name(std::string_view name, bool has_cursor) {
    make_room(1);
    if (has_cursor) mark_cursor();
    for (const char& letter : name) put({&letter, 1}, 1);
  }

  void add_cluster(std::string_view cluster, bool has_cursor, std::string_view continuation) {
    const CodePoint first = code_point_at(cluster, 0);
    if (first.value == U'\n') {
      end_row();
      if (has_cursor) mark_cursor();
      new_row();
      add(continuation, std::nullopt, {});
      return;
    }
    if (first.value == U'\t') {
      make_room(1);
      const std::size_t stop = std::min(columns_, (row().columns / kTabColumns + 1) * kTabColumns);
      return put_name(std::string(stop - row().columns, ' '), has_cursor);
    }
    if (first.value < 0x20 || first.value == 0x7F) {
      const char name[] = {'^', static_cast<char>(first.value ^ 0x40)};
      return put_name({name, 2}, has_cursor);
    }
    const bool is_first_mark = is_mark(first.value);
    if (cell_width(first.value) == 0 && !is_first_mark) {
      put_name(fmt::format("<{:X}>", static_cast<std::uint32_t>(first.value)), has_cursor);
      cluster.remove_prefix(first.bytes);
    } else {
      make_room(is_first_mark ? 1 : std::min(columns_, cell_width(first.value)));
      if (has_cursor) mark_cursor();
      if (is_first_mark) put(kDottedCircle, 1);
    }
    for (; !cluster.empty(); cluster.remove_prefix(code_point_at(cluster, 0).bytes)) add_code_point(cluster);
  }

  // The first code point of `rest`. A screen of one column has no room for a wide character.
  void add_code_point(std::string_view rest) {
    const CodePoint code_point = code_point_at(rest, 0);
    const std::size_t columns = cell_width(code_point.value);
    if (columns > columns_) return put("?", 1);
    put(rest.substr(0, code_point.bytes), columns);
  }

  std::size_t columns_;
  ScreenLayout layout_;
};

// The row, from 0, that contains the cell after the first `columns` cells of `row` when the row is rewrapped
// at `width`.
std::size_t row_when_broken(const ScreenRow& row, std::size_t columns, std::size_t width) {
  std::size_t rows = 0, column = 0, cells = 0;
  for (std::size_t at = 0; at < row.bytes.size();) {
    const CodePoint code_point = code_point_at(row.bytes, at);
    const std::size_t needed = cell_width(code_point.value);
    if (column + needed > width) {
      ++rows;
      column = 0;
    }
    if (cells >= columns && needed > 0) break;  // a mark belongs to the cell before
    column += needed;
    cells += needed;
    at += code_point.bytes;
  }
  return rows;
}

// Writes the bytes that change a screen, and tracks its cursor.
class Pen {
 public:
  explicit Pen(std::size_t row) : row_(row) {}

  void move_to(std::size_t row, std::size_t column) {
    if (row < row_) bytes_ += fmt::format("\x1B[{}A", row_ - row);
    if (row > row_) bytes_ += fmt::format("\x1B[{}B", row - row_);
    row_ = row;
    bytes_ += '\r';  // even in the right column: after the last cell the cursor is elsewhere
    if (column > 0) bytes_ += fmt::format("\x1B[{}C", column);
  }
  void next_row() {
    bytes_ += "\r\n";
    ++row_;
  }
  void write(std::string_view bytes) { bytes_ += bytes; }

  std::string take() && { return std::move(bytes_); }

 private:
  std::size_t row_;
  std::string bytes_;
};

// Updates the screen from `old` to `rows`, which first differ at `same`.
void rewrite_rows(Pen& pen, const std::vector<ScreenRow>& old, const std::vector<ScreenRow>& rows,
                  std::size_t same) {
  std::size_t next = same;
  if (same == old.size()) {
    pen.move_to(same - 1, 0);
  } else {
    // The common case is typing at the end of a row: write only the new part.
    const bool grows = same < rows.size() && rows[same].bytes.size() > old[same].bytes.size() &&
                       rows[same].bytes.starts_with(old[same].bytes) &&
                       static_cast<unsigned char>(rows[same].bytes[old[same].bytes.size()]) < 0x80;
    pen.move_to(same, grows ? old[same].columns : 0);
    if (!grows || old.size() > same + 1) pen.write(kEraseBelow);
    if (same == rows.size()) return;
    pen.write(std::string_view(rows[same].bytes).substr(grows ? old[same].bytes.size() : 0));
    ++next;
  }
  for (; next < rows.size(); ++next) {
    pen.next_row();
    pen.write(rows[next].bytes);
  }
}

}  // namespace

ScreenLayout lay_out(const ScreenView& view, std::size_t columns) {
  MF_REQUIRE(view.cursor <= view.text.size(), "the cursor is in the text");
  Typesetter typesetter(std::max<std::size_t>(columns, 1));
  typesetter.add(view.prompt, std::nullopt, {});
  typesetter.add(view.text, view.cursor, view.continuation);
  typesetter.end_row();
  if (!view.below.empty()) {
    typesetter.new_row();
    typesetter.add(view.below, std::nullopt, {});
  }
  return std::move(typesetter).take();
}

ScreenLayout ScreenLine::window_of(ScreenLayout layout) {
  const std::size_t height = std::max<std::size_t>(size_.rows, 1), total = layout.rows.size();
  std::size_t begin = std::min(window_begin_, total - std::min(total, height));
  begin = std::min(begin, layout.cursor_row);
  if (layout.cursor_row - begin >= height) begin = layout.cursor_row - height + 1;
  window_begin_ = begin;
  const std::size_t end = std::min(total, begin + height);
  const auto first = std::make_move_iterator(layout.rows.begin());
  return {.rows = {first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end)},
          .cursor_row = layout.cursor_row - begin,
          .cursor_column = layout.cursor_column};
}

std::string ScreenLine::draw(const ScreenView& view) {
  ScreenLayout next = window_of(lay_out(view, size_.columns));
  Pen pen(shown_.cursor_row);
  if (shown_.rows.empty() || is_stale_) {
    pen.move_to(0, 0);
    pen.write(kEraseBelow);
    pen.write(next.rows[0].bytes);
    shown_.rows.assign(1, next.rows[0]);
    is_stale_ = false;
  }
  const auto same = static_cast<std::size_t>(
      std::mismatch(shown_.rows.begin(), shown_.rows.end(), next.rows.begin(), next.rows.end()).first -
      shown_.rows.begin());
  const bool differs = same < shown_.rows.size() || same < next.rows.size();
  if (differs) rewrite_rows(pen, shown_.rows, next.rows, same);
  pen.move_to(next.cursor_row, next.cursor_column);
  shown_ = std::move(next);
  return std::move(pen).take();
}

void ScreenLine::resize(ScreenSize size) {
  if (size == size_) return;
  const std::size_t width = std::max<std::size_t>(size.columns, 1);
  std::size_t above = 0;
  if (!shown_.rows.empty()) {
    for (std::size_t i = 0; i < shown_.cursor_row; ++i) {
      above += 1 + row_when_broken(shown_.rows[i], shown_.rows[i].columns, width);
    }
    above += row_when_broken(shown_.rows[shown_.cursor_row], shown_.cursor_column, width);
  }
  shown_.cursor_row = std::min(above, std::max<std::size_t>(size.rows, 1) - 1);
  is_stale_ = !shown_.rows.empty();
  size_ = size;
}

std::string ScreenLine::finish() {
  Pen pen(shown_.cursor_row);
  if (is_stale_) {
    pen.next_row();
  } else if (!shown_.rows.empty()) {
    const std::size_t last = shown_.rows.size() - 1;
    pen.move_to(last, 0);
    if (shown_.rows[last].columns > 0 || last == 0) pen.next_row();
  }
  shown_ = {};
  window_begin_ = 0;
  is_stale_ = false;
  return std::move(pen).take();
}

std::string ScreenLine::clear() {
  shown_ = {};
  window_begin_ = 0;
  is_stale_ = false;
  return "\x1B[H\x1B[2J";
}

}  // namespace moeflux::cli
