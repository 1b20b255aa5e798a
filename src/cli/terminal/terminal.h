#pragma once
// Puts a terminal into the mode that a line editor needs, for the object's lifetime: bytes arrive as they are
// typed, without echo and without signals for Ctrl-C and Ctrl-Z, and pastes are bracketed. Output processing
// is unchanged, so LF still returns to the first column.
//
// The destructor restores the terminal. A signal that ends the process restores it too (SIGTERM, SIGHUP,
// SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, where not ignored) and then takes its usual effect;
// after SIGKILL, `stty sane` helps. SIGWINCH, SIGCONT and SIGINT become events of wait(), through a pipe that
// the handlers write to from any thread.
//
// Global state, because signals are global: that pipe, which is never closed, so that a late handler cannot
// write to a reused descriptor; and the settings that a handler restores. Hence one RawTerminal at a time.
// The descriptors are borrowed. One thread at a time.

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "cli/terminal/screen_line.h"

namespace moeflux::cli {

// True if `output` is a terminal that supports the sequences of screen_line.h and word_wrap.h. `term` is the
// environment's TERM, or null.
bool can_move_cursor(int output, const char* term);
// The same, and `input` is a terminal too.
bool can_edit_lines(int input, int output, const char* term);

// The size that the kernel reports, or 80 x 24.
ScreenSize screen_size(int output);

// Writes all of `bytes`; waits if the descriptor is nonblocking.
Status write_all(int output, std::string_view bytes);

class RawTerminal {
 public:
  enum class Event { input, timed_out, resized, resumed, interrupted };

  static Result<std::unique_ptr<RawTerminal>> enter(int input, int output);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  // Waits for the next event, without a timeout if there is none. `input` may also mean the end of the input.
  Result<Event> wait(std::optional<std::chrono::milliseconds> timeout);
  // After `input`: the available bytes; none at the end of the input (the terminal is gone).
  Result<std::size_t> read(std::span<char> bytes);
  Status write(std::string_view bytes);
  ScreenSize size() const { return screen_size(output_); }

  // Ctrl-Z: restores the terminal and stops the process; after `fg`, sets the terminal up again.
  Status suspend();
  // After `resumed`: sets the terminal up again, since another program may have changed its state.
  Status make_raw();

 private:
  RawTerminal(int input, int output, const termios& before);
  void put_back();
  void take_signals();
  void give_signals_back();

  int input_, output_;
  termios before_;
};

}  // namespace moeflux::cli
