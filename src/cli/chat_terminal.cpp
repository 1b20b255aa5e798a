#include "cli/chat_terminal.h"

#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "cli/console.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "cli/terminal/utf8.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kDim = "\x1b[2m", kPlain = "\x1b[0m", kClearLine = "\r\x1b[K";

// Turns echo off during an answer. Keys typed meanwhile go to the next line.
class WithoutEcho {
 public:
  explicit WithoutEcho(bool is_terminal)
      : is_terminal_(is_terminal && ::tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!is_terminal_) return;
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
  }
  ~WithoutEcho() {
    if (is_terminal_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  WithoutEcho(const WithoutEcho&) = delete;
  WithoutEcho& operator=(const WithoutEcho&) = delete;

 private:
  termios before_{};
  bool is_terminal_;
};

bool wants_no_color() {
  const char* const no_color = std::getenv("NO_COLOR");
  return no_color != nullptr && *no_color != '\0';
}

}  // namespace

StandardTerminal::StandardTerminal(std::filesystem::path history_file)
    : history_file_(std::move(history_file)),
      is_terminal_(can_edit_lines(STDIN_FILENO, STDOUT_FILENO, std::getenv("TERM"))),
      has_style_(is_terminal_ && !wants_no_color()),
      editor_(STDIN_FILENO, STDOUT_FILENO, std::getenv("TERM"), history_,
              [](std::string_view) { return Chat::commands(); }),
      output_(STDOUT_FILENO, std::getenv("TERM")) {
  // The chat works without its history, so errors of the file are ignored.
  if (is_terminal_ && !history_file_.empty()) (void)history_.load(history_file_);
}

StandardTerminal::~StandardTerminal() {
  if (!is_terminal_ || history_file_.empty() || history_.entries().empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(history_file_.parent_path(), ignored);
  (void)history_.save(history_file_);
}

Result<Line> StandardTerminal::read_line() {
  output_.end_text();
  return editor_.read({"> ", "... "});
}

std::string StandardTerminal::dimmed(std::string_view text) const {
  return has_style_ ? fmt::format("{}{}{}", kDim, text, kPlain) : std::string(text);
}

Status StandardTerminal::write(std::string_view text, Style style) {
  progress("");
  const std::string bytes = output_.bytes_for(text);
  return write_all(STDOUT_FILENO, style == Style::reasoning ? dimmed(bytes) : bytes);
}

void StandardTerminal::note(std::string_view line) {
  progress("");
  if (!is_terminal_) {
    print_note(line);
    return;
  }
  const std::string text = output_.note_bytes(clean_utf8(line));
  (void)write_all(STDOUT_FILENO, dimmed(text) + output_.bytes_for("\n"));
}

void StandardTerminal::progress(std::string_view line) {
  if (!is_terminal_ || (line.empty() && !has_progress_)) return;
  has_progress_ = !line.empty();
  (void)write_all(STDOUT_FILENO, fmt::format("{}{}", kClearLine, line));
}

int StandardTerminal::while_interruptible(FunctionRef<void(const std::atomic<bool>&)> work) {
  const WithoutEcho quiet(is_terminal_);
  const InterruptGuard guard;
  work(guard.flag());
  return guard.count();
}

}  // namespace moeflux::cli
