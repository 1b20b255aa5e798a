#pragma once
// The exit codes: 0 ok, 1 failure, 2 usage, 3 model not found or invalid, 4 not enough memory or disk, 5 I/O
// error, 130 and 143 after SIGINT and SIGTERM.

#include "base/result.h"

namespace moeflux::cli {

enum class ExitCode : int {
  ok = 0,
  failure = 1,
  usage = 2,
  bad_model = 3,
  no_room = 4,
  io_error = 5,
  interrupted = 130,
};

ExitCode exit_code_of(const Error& error);

}  // namespace moeflux::cli
