#include "cli/terminal/edit_buffer.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cli/terminal/utf8.h"

namespace moeflux::cli {
namespace {

constexpr std::size_t kMaxChanges = 1000;
constexpr std::size_t kMaxChangesBytes = 2 * kMaxTextBytes;

bool is_space(std::string_view text, std::size_t at) {
  const char32_t value = code_point_at(text, at).value;
  return value == U' ' || value == U'\t' || value == U'\n' ||
         utf8proc_category(static_cast<utf8proc_int32_t>(value)) == UTF8PROC_CATEGORY_ZS;
}

// Letters, marks and numbers.
bool is_word(std::string_view text, std::size_t at) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code_point_at(text, at).value));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO;
}

std::string with_line_feeds(std::string_view bytes) {
  std::string text = clean_utf8(bytes);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    text[kept++] = text[i] == '\r' ? '\n' : text[i];
  }
  text.resize(kept);
  return text;
}

std::size_t begin_of_line(std::string_view text, std::size_t at) {
  const std::size_t feed = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  return feed == std::string_view::npos ? 0 : feed + 1;
}

std::size_t end_of_line(std::string_view text, std::size_t at) {
  return std::min(text.find('\n', at), text.size());
}

std::size_t clusters_between(std::string_view text, std::size_t begin, std::size_t end) {
  std::size_t clusters = 0;
  for (; begin < end; begin = next_border(text, begin)) ++clusters;
  return clusters;
}

// `clusters` after `begin`, or the end of that line.
std::size_t column_of_line(std::string_view text, std::size_t begin, std::size_t clusters) {
  const std::size_t end = end_of_line(text, begin);
  for (; begin < end && clusters > 0; --clusters) begin = next_border(text, begin);
  return begin;
}

// Start of the last run of `wanted` clusters that begins before `end`; 0 if there is none.
template <class Wanted>
std::size_t last_run_before(std::string_view text, std::size_t end, const Wanted& wanted) {
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t at = 0; at < end; at = next_border(text, at)) {
    const bool is_wanted = wanted(text, at);
    if (is_wanted && !inside) begin = at;
    inside = is_wanted;
  }
  return begin;
}

}  // namespace

std::size_t EditBuffer::line_begin() const { return begin_of_line(text_, cursor_); }
std::size_t EditBuffer::line_end() const { return end_of_line(text_, cursor_); }

// Every change of the text goes through here. The cursor ends after the inserted text, or after the cluster
// that the text became part of.
bool EditBuffer::replace(std::size_t begin, std::size_t end, std::string_view inserted) {
  MF_REQUIRE(begin <= end && end <= text_.size(), "what is replaced is part of the text");
  if (begin == end && inserted.empty()) return false;
  if (inserted.size() > kMaxTextBytes - (text_.size() - (end - begin))) return false;
  const bool typed =
      begin == end && begin == cursor_ && inserted != "\n" && next_border(inserted, 0) == inserted.size();
  remember({begin, inserted.size(), cursor_, text_.substr(begin, end - begin), typed});
  text_.replace(begin, end - begin, inserted);
  cursor_ = border_from(text_, begin + inserted.size());
  just_killed_ = false;
  return true;
}

void EditBuffer::remember(Change change) {
  if (change.typed && !changes_.empty() && changes_.back().typed &&
      changes_.back().begin + changes_.back().inserted_bytes == change.begin &&
      change.cursor_before == change.begin) {
    changes_.back().inserted_bytes += change.inserted_bytes;
    return;
  }
  changes_bytes_ += change.removed.size();
  changes_.push_back(std::move(change));
  while (changes_.size() > kMaxChanges || changes_bytes_ > kMaxChangesBytes) {
    changes_bytes_ -= changes_.front().removed.size();
    changes_.pop_front();
  }
}

bool EditBuffer::undo() {
  just_killed_ = false;
  if (changes_.empty()) return false;
  const Change change = std::move(changes_.back());
  changes_.pop_back();
  changes_bytes_ -= change.removed.size();
  text_.replace(change.begin, change.inserted_bytes, change.removed);
  cursor_ = border_from(text_, change.cursor_before);
  return true;
}

bool EditBuffer::insert(std::string_view bytes) { return replace(cursor_, cursor_, with_line_feeds(bytes)); }

bool EditBuffer::replace_all(std::string_view bytes) {
  return replace(0, text_.size(), with_line_feeds(bytes));
}

bool EditBuffer::replace_before(std::size_t begin, std::string_view bytes) {
  MF_REQUIRE(begin <= cursor_, "what is replaced ends at the cursor");
  return replace(begin, cursor_, with_line_feeds(bytes));
}

void EditBuffer::clear() {
  text_.clear();
  cursor_ = 0;
  just_killed_ = false;
  changes_.clear();
  changes_bytes_ = 0;
}

bool EditBuffer::move_to(std::size_t border) {
  just_killed_ = false;
  if (!changes_.empty()) changes_.back().typed = false;
  return std::exchange(cursor_, border) != border;
}

bool EditBuffer::left() { return move_to(border_before(text_, cursor_)); }
bool EditBuffer::right() { return move_to(cursor_ == text_.size() ? cursor_ : next_border(text_, cursor_)); }

std::size_t EditBuffer::word_begin() const { return last_run_before(text_, cursor_, is_word); }

std::size_t EditBuffer::word_end() const {
  std::size_t at = cursor_;
  bool in_word = false;
  while (at < text_.size() && (is_word(text_, at) || !in_word)) {
    in_word = is_word(text_, at);
    at = next_border(text_, at);
  }
  return at;
}

bool EditBuffer::word_left() { return move_to(word_begin()); }
bool EditBuffer::word_right() { return move_to(word_end()); }
bool EditBuffer::home() { return move_to(line_begin()); }
bool EditBuffer::end() { return move_to(line_end()); }
bool EditBuffer::text_end() { return move_to(text_.size()); }

bool EditBuffer::line_up() {
  const std::size_t begin = line_begin();
  if (begin == 0) return false;
  const std::size_t column = clusters_between(text_, begin, cursor_);
  return move_to(column_of_line(text_, begin_of_line(text_, begin - 1), column));
}

bool EditBuffer::line_down() {
  const std::size_t end = line_end();
  if (end == text_.size()) return false;
  const std::size_t column = clusters_between(text_, line_begin(), cursor_);
  return move_to(column_of_line(text_, end + 1, column));
}

bool EditBuffer::erase_before() { return replace(border_before(text_, cursor_), cursor_, {}); }

bool EditBuffer::erase_after() {
  return cursor_ < text_.size() && replace(cursor_, next_border(text_, cursor_), {});
}

bool EditBuffer::kill(std::size_t begin, std::size_t end, Direction direction) {
  if (begin == end) return false;
  const std::string text = text_.substr(begin, end - begin);
  if (!just_killed_) killed_.clear();
  if (killed_.size() > kMaxTextBytes) killed_.clear();
  killed_.insert(direction == Direction::before ? 0 : killed_.size(), text);
  replace(begin, end, {});
  just_killed_ = true;
  return true;
}

bool EditBuffer::kill_word_before() { return kill(word_begin(), cursor_, Direction::before); }
bool EditBuffer::kill_word_after() { return kill(cursor_, word_end(), Direction::after); }
bool EditBuffer::kill_to_line_begin() { return kill(line_begin(), cursor_, Direction::before); }

bool EditBuffer::kill_space_before() {
  const auto is_not_space = [](std::string_view text, std::size_t at) { return !is_space(text, at); };
  return kill(last_run_before(text_, cursor_, is_not_space), cursor_, Direction::before);
}

bool EditBuffer::kill_to_line_end() {
  const std::size_t end = line_end();
  return kill(cursor_, end == cursor_ && end < text_.size() ? end + 1 : end, Direction::after);
}

bool EditBuffer::yank() { return replace(cursor_, cursor_, killed_); }

bool EditBuffer::transpose() {
  const std::size_t middle = cursor_ == line_end() ? border_before(text_, cursor_) : cursor_;
  if (middle <= line_begin() || middle >= line_end()) return false;
  const std::size_t begin = border_before(text_, middle), end = next_border(text_, middle);
  return replace(begin, end, text_.substr(middle, end - middle) + text_.substr(begin, middle - begin));
}

}  // namespace moeflux::cli
