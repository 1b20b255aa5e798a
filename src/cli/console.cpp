#include "cli/console.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/printable.h"

namespace moeflux::cli {

void complain(std::string_view message) { fmt::print(stderr, "moeflux: {}\n", message); }

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
    fmt::print(stderr, "{}\n", printable(message, std::string::npos));
}

}  // namespace moeflux::cli
