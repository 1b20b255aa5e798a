#pragma once
// The text that is being typed: UTF-8, a cursor, and what keys do to both.
//
// The cursor is always on a border between two grapheme clusters (utf8.h), so an accent is never parted from
// its letter. Lines are parted by LF; "line" commands act on the one that has the cursor. What is killed
// replaces the kept text that yank() brings back; kills that follow each other directly add up. Every change
// can be undone, the oldest excepted when there are very many.
//
// Commands return whether they did anything. No input or output. One thread at a time.

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace moeflux::cli {

constexpr std::size_t kMaxTextBytes = std::size_t{16} << 20;

class EditBuffer {
 public:
  const std::string& text() const { return text_; }
  std::size_t cursor() const { return cursor_; }  // in bytes
  std::size_t line_begin() const;                 // of the cursor's line
  std::size_t line_end() const;

  // Any bytes: they are made valid, and CR LF and CR become LF. Nothing is inserted where the text would
  // become longer than kMaxTextBytes.
  bool insert(std::string_view bytes);
  // All of the text; the cursor goes to its end. A longer one than kMaxTextBytes is refused.
  bool replace_all(std::string_view bytes);
  // The bytes from `begin` to the cursor, for completion; `begin` is at most the cursor and between two
  // characters.
  bool replace_before(std::size_t begin, std::string_view bytes);
  // A new text begins: empty, with nothing to undo. What was killed stays.
  void clear();

  bool left();
  bool right();
  bool word_left();
  bool word_right();
  bool home();  // of the line
  bool end();
  bool text_end();
  bool line_up();  // to the same column, counted in clusters, of the line above
  bool line_down();

  bool erase_before();
  bool erase_after();
  bool kill_word_before();   // letters and digits, and what follows them up to the cursor
  bool kill_space_before();  // all that is not white space
  bool kill_word_after();
  bool kill_to_line_end();  // at the end of a line: its LF
  bool kill_to_line_begin();
  bool yank();
  bool transpose();  // the clusters on both sides of the cursor; at the end of a line, the last two
  bool undo();

 private:
  // `removed` stood at `begin`, where now are `inserted_bytes` others.
  struct Change {
    std::size_t begin, inserted_bytes, cursor_before;
    std::string removed;
    bool typed;  // one of a run of characters that are undone together
  };
  enum class Direction { before, after };

  std::size_t word_begin() const;
  std::size_t word_end() const;
  bool move_to(std::size_t border);
  bool replace(std::size_t begin, std::size_t end, std::string_view inserted);
  bool kill(std::size_t begin, std::size_t end, Direction direction);
  void remember(Change change);

  std::string text_;
  std::size_t cursor_ = 0;
  std::string killed_;
  bool just_killed_ = false;
  std::deque<Change> changes_;
  std::size_t changes_bytes_ = 0;
};

}  // namespace moeflux::cli
