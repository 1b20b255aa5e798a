#include "cli/terminal/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <string>

#include "base/check.h"
#include "io/system_error.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kPasteOn = "\x1B[?2004h";
constexpr std::string_view kPasteOff = "\x1B[?2004l";
constexpr std::array kEventSignals = {SIGWINCH, SIGCONT, SIGINT};
constexpr std::array kFatalSignals = {SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};

// State of the handlers. Its fields are written while `active` is false, before it becomes true.
struct SignalState {
  std::atomic<bool> active{false};
  std::atomic<int> pipe_write{-1};
  int pipe_read = -1;
  int input = -1, output = -1;
  termios before{};
  std::array<struct sigaction, kEventSignals.size()> previous_event{};
  std::array<struct sigaction, kFatalSignals.size()> previous_fatal{};
};
SignalState state;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

// Ignores failures: a handler and a destructor cannot handle them.
void write_what_goes(int fd, std::string_view bytes) {
  const ssize_t written = ::write(fd, bytes.data(), bytes.size());
  (void)written;
}

extern "C" void tell_event(int signal_number) {
  const int error_number = errno;
  const char byte = static_cast<char>(signal_number);
  write_what_goes(state.pipe_write.load(), {&byte, 1});  // a full pipe already wakes the reader
  errno = error_number;
}

// Calls only async-signal-safe functions. Runs the previous handler next, or ends the process if the previous
// action was the default.
extern "C" void put_back_and_raise_again(int signal_number) {
  if (state.active.load()) {
    write_what_goes(state.output, kPasteOff);
    ::tcsetattr(state.input, TCSANOW, &state.before);
  }
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    if (kFatalSignals[i] == signal_number) ::sigaction(signal_number, &state.previous_fatal[i], nullptr);
  }
  ::raise(signal_number);
}

Status make_signal_pipe() {
  if (state.pipe_write.load() >= 0) return {};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return system_error(errno, "making a pipe for signals");
  state.pipe_read = ends[0];
  state.pipe_write.store(ends[1]);
  return {};
}

void forget_events() {
  for (char bytes[64]; ::read(state.pipe_read, bytes, sizeof bytes) > 0;) {
  }
}

int milliseconds_of(std::optional<std::chrono::milliseconds> timeout) {
  if (!timeout) return -1;
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(1);
  return static_cast<int>(std::clamp(*timeout, std::chrono::milliseconds(0), kLongest).count());
}

}  // namespace

bool can_move_cursor(int output, const char* term) {
  if (::isatty(output) != 1 || term == nullptr) return false;
  const std::string_view name = term;
  return !name.empty() && name != "dumb";
}

bool can_edit_lines(int input, int output, const char* term) {
  return ::isatty(input) == 1 && can_move_cursor(output, term);
}

ScreenSize screen_size(int output) {
  winsize window{};
  if (::ioctl(output, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) return {};
  return {.columns = window.ws_col, .rows = window.ws_row};
}

Status write_all(int output, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(output, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd end = {.fd = output, .events = POLLOUT, .revents = 0};
      (void)::poll(&end, 1, -1);
    } else if (errno != EINTR) {
      return system_error(errno, "writing to the terminal");
    }
  }
  return {};
}

Result<std::unique_ptr<RawTerminal>> RawTerminal::enter(int input, int output) {
  termios before{};
  if (::tcgetattr(input, &before) != 0) return system_error(errno, "asking for the state of the terminal");
  MF_TRY_STATUS(make_signal_pipe());
  std::unique_ptr<RawTerminal> terminal(new RawTerminal(input, output, before));
  MF_TRY_STATUS(terminal->make_raw());
  return terminal;
}

RawTerminal::RawTerminal(int input, int output, const termios& before)
    : input_(input), output_(output), before_(before) {
  take_signals();
}

RawTerminal::~RawTerminal() {
  put_back();
  give_signals_back();
}

void RawTerminal::take_signals() {
  MF_REQUIRE(!state.active.load(), "there is one RawTerminal at a time");
  forget_events();
  state.input = input_;
  state.output = output_;
  state.before = before_;
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = tell_event;
  action.sa_flags = SA_RESTART;  // the pipe wakes poll; calls of other threads must not fail
  for (std::size_t i = 0; i < kEventSignals.size(); ++i) {
    ::sigaction(kEventSignals[i], &action, &state.previous_event[i]);
  }
  // All previous actions are saved before the first handler can need one.
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    ::sigaction(kFatalSignals[i], nullptr, &state.previous_fatal[i]);
  }
  state.active.store(true);
  action.sa_handler = put_back_and_raise_again;
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    if (state.previous_fatal[i].sa_handler != SIG_IGN) ::sigaction(kFatalSignals[i], &action, nullptr);
  }
}

void RawTerminal::give_signals_back() {
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    if (state.previous_fatal[i].sa_handler != SIG_IGN) {
      ::sigaction(kFatalSignals[i], &state.previous_fatal[i], nullptr);
    }
  }
  for (std::size_t i = 0; i < kEventSignals.size(); ++i) {
    ::sigaction(kEventSignals[i], &state.previous_event[i], nullptr);
  }
  state.active.store(false);
}

Status RawTerminal::make_raw() {
  termios raw = before_;
  raw.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INLCR | IGNCR | INPCK | ISTRIP | IXON);
  raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  // Not TCSAFLUSH: keeps input that was typed ahead.
  while (::tcsetattr(input_, TCSADRAIN, &raw) != 0) {
    if (errno != EINTR) return system_error(errno, "setting the state of the terminal");
  }
  return write(kPasteOn);
}

void RawTerminal::put_back() {
  write_what_goes(output_, kPasteOff);
  while (::tcsetattr(input_, TCSADRAIN, &before_) != 0 && errno == EINTR) {
  }
}

Result<RawTerminal::Event> RawTerminal::wait(std::optional<std::chrono::milliseconds> timeout) {
  pollfd ends[2] = {{.fd = state.pipe_read, .events = POLLIN, .revents = 0},
                    {.fd = input_, .events = POLLIN, .revents = 0}};
  for (;;) {
    const int ready = ::poll(ends, 2, milliseconds_of(timeout));
    if (ready < 0 && errno == EINTR) continue;  // the pipe has the event
    if (ready < 0) return system_error(errno, "waiting for the terminal");
    if (ready == 0 && timeout) return Event::timed_out;
    if (ends[0].revents == 0) {
      if (ends[1].revents != 0) return Event::input;
      continue;
    }
    char signal_number = 0;
    if (::read(state.pipe_read, &signal_number, 1) != 1) continue;
    if (signal_number == SIGWINCH) return Event::resized;
    return signal_number == SIGCONT ? Event::resumed : Event::interrupted;
  }
}

Result<std::size_t> RawTerminal::read(std::span<char> bytes) {
  for (;;) {
    const ssize_t got = ::read(input_, bytes.data(), bytes.size());
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EIO) return std::size_t{0};  // the other end of the terminal is gone
    if (errno == EAGAIN) {
      pollfd end = {.fd = input_, .events = POLLIN, .revents = 0};
      (void)::poll(&end, 1, -1);
    } else if (errno != EINTR) {
      return system_error(errno, "reading from the terminal");
    }
  }
}

Status RawTerminal::write(std::string_view bytes) { return write_all(output_, bytes); }

Status RawTerminal::suspend() {
  put_back();
  // Signals all processes of the job, as the terminal itself would.
  if (::kill(0, SIGTSTP) != 0) return system_error(errno, "stopping the process");
  forget_events();  // drops the SIGCONT of this stop
  return make_raw();
}

}  // namespace moeflux::cli
