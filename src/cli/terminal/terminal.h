#pragma once
// A terminal in the state that a line editor needs, for as long as the object lives: bytes come as they are
// typed, without echo and without signals for Ctrl-C and Ctrl-Z, and pastes are bracketed. Output stays as it
// was, so LF still returns to the first column.
//
// At its end the terminal is as before. It is put back, too, when the process is ended by a signal (SIGTERM,
// SIGHUP, SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, where not ignored), which then takes its usual
// way; SIGKILL leaves it as it is (`stty sane` helps). SIGWINCH, SIGCONT and SIGINT become events of wait(),
// through a pipe that the handlers write to, whichever thread they run in.
//
// Global, because signals are: that pipe, made once and kept to the end of the process, so that a late
// handler never writes to a descriptor that has become something else; and what a handler needs to put the
// terminal back. Hence one RawTerminal at a time. The descriptors are borrowed. One thread at a time.

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

// Both ends are terminals that know the sequences of screen_line.h. `term` is the environment's TERM, or
// null.
bool can_edit_lines(int input, int output, const char* term);

// All of `bytes`, waiting where the descriptor does not.
Status write_all(int output, std::string_view bytes);

class RawTerminal {
 public:
  enum class Event { input, timed_out, resized, resumed, interrupted };

  static Result<std::unique_ptr<RawTerminal>> enter(int input, int output);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  // What happens next; without a timeout it waits for as long as it takes. `input` may also mean the end of
  // it.
  Result<Event> wait(std::optional<std::chrono::milliseconds> timeout);
  // After `input`: the bytes that are there, none of them at the end of the input (a terminal that is gone).
  Result<std::size_t> read(std::span<char> bytes);
  Status write(std::string_view bytes);
  // As the kernel knows it; 80 x 24 where it does not.
  ScreenSize size() const;

  // Ctrl-Z: the terminal as before, the process stopped; after `fg`, raw again.
  Status suspend();
  // After `resumed`: whoever had the terminal meanwhile may have changed its state.
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
