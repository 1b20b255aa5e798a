#pragma once
// The text being edited: UTF-8, a cursor, and the effect of keys on both.
//
// The cursor is always on a boundary between two grapheme clusters (utf8.h), so an accent is never separated
// from its letter. Lines are separated by LF; "line" commands act on the line of the cursor. A kill replaces
// the kept text that yank() inserts; consecutive kills accumulate. Every change can be undone, except the
// oldest when there are very many.
//
// Commands return whether they changed anything. No input or output. One thread at a time.

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

  // Inserts any bytes: they are made valid UTF-8, and CR LF and CR become LF. Inserts nothing if the text
  // would exceed kMaxTextBytes.
  bool insert(std::string_view bytes);
  // Replaces the text and moves the cursor to its end. Rejects a text above kMaxTextBytes.
  bool replace_all(std::string_view bytes);
  // Replaces the bytes from `begin` to the cursor, for completion. Requires: `begin` is at most the cursor
  // and on a boundary.
  bool replace_before(std::size_t begin, std::string_view bytes);
  // Starts a new text: empty, with nothing to undo. The killed text stays.
  void clear();

  bool left();
  bool right();
  bool word_left();
  bool word_right();
  bool home();  // of the line
  bool end();
  bool text_end();
  bool line_up();  // to the same column of the line above, counted in clusters
  bool line_down();

  bool erase_before();
  bool erase_after();
  bool kill_word_before();   // letters and digits, and everything from there to the cursor
  bool kill_space_before();  // everything up to white space
  bool kill_word_after();
  bool kill_to_line_end();  // at the end of a line: its LF
  bool kill_to_line_begin();
  bool yank();
  bool transpose();  // the clusters on both sides of the cursor; at the end of a line, the last two
  bool undo();

 private:
  // Records that `inserted_bytes` bytes replaced `removed` at `begin`.
  struct Change {
    std::size_t begin, inserted_bytes, cursor_before;
    std::string removed;
    bool typed;  // part of a run of characters that are undone together
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
