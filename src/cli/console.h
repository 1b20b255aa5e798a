#pragma once
// Standard output and standard error of the process.
//
// Standard output carries only the requested output, so that it can be piped. Errors, warnings and notes go
// to standard error. One thread at a time.

#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "cli/exit_code.h"

namespace moeflux::cli {

// Prints "moeflux: MESSAGE" to standard error.
void complain(std::string_view message);

// Prints `note` and a newline to standard error. On a terminal, lines break only between fields ("a · b").
void print_note(std::string_view note);

// Prints `error` with complain(), on one line, even if a path or a name in it contains newlines.
ExitCode report(const Error& error);

// Writes `text` to standard output at once. A full disk or a closed pipe is io_failed, not a silent success.
Status write_output(std::string_view text);

// Ends a command: prints its text or reports its error. A cancelled command is not reported: the user asked
// for it.
ExitCode finish(const Status& status);
ExitCode finish(const Result<std::string>& text);

// Prints the library's log: warnings as complaints, information unchanged, lower levels not at all.
class TerminalLog final : public LogSink {
 public:
  void write(LogLevel level, std::string_view message) override;
};

}  // namespace moeflux::cli
