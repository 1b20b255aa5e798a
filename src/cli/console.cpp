#include "cli/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/printable.h"
#include "cli/terminal/terminal.h"
#include "cli/terminal/utf8.h"
#include "cli/terminal/wrapped_output.h"

namespace moeflux::cli {

void complain(std::string_view message) { fmt::print(stderr, "moeflux: {}\n", message); }

void print_note(std::string_view note) {
  WrappedOutput terminal(STDERR_FILENO, std::getenv("TERM"));
  const std::string text = terminal.wraps() ? terminal.note_bytes(clean_utf8(note)) : std::string(note);
  (void)write_all(STDERR_FILENO, text + "\n");
}

ExitCode report(const Error& error) {
  complain(printable(error.message(), std::string::npos));
  return exit_code_of(error);
}

Status write_output(std::string_view text) {
  const bool is_written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (is_written && std::fflush(stdout) == 0) return {};
  return Error{ErrorCode::io_failed, "cannot write to standard output"};
}

ExitCode finish(const Status& status) {
  if (status) return ExitCode::ok;
  return status.error().code() == ErrorCode::cancelled ? ExitCode::interrupted : report(status.error());
}

ExitCode finish(const Result<std::string>& text) {
  return text ? finish(write_output(*text)) : report(text.error());
}

void TerminalLog::write(LogLevel level, std::string_view message) {
  if (level >= LogLevel::warning)
    complain(fmt::format("{}: {}", name_of(level), printable(message, std::string::npos)));
  else if (level == LogLevel::info)
    print_note(printable(message, std::string::npos));
}

}  // namespace moeflux::cli
