#include "cli/exit_code.h"

namespace moeflux::cli {

ExitCode exit_code_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::not_found:
    case ErrorCode::corrupt_data:
    case ErrorCode::unsupported: return ExitCode::bad_model;
    case ErrorCode::no_space:
    case ErrorCode::out_of_memory: return ExitCode::no_room;
    case ErrorCode::io_failed: return ExitCode::io_error;
    case ErrorCode::invalid_argument: return ExitCode::usage;
    case ErrorCode::token_out_of_range:
    case ErrorCode::context_full:
    case ErrorCode::cancelled: return ExitCode::failure;
  }
  return ExitCode::failure;
}

}  // namespace moeflux::cli
