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
    case ErrorCode::buffer_too_small:
    case ErrorCode::bad_magic:
    case ErrorCode::bad_version:
    case ErrorCode::shape_mismatch:
    case ErrorCode::negative_length:
    case ErrorCode::length_overflow:
    case ErrorCode::unequal_lengths:
    case ErrorCode::truncated:
    case ErrorCode::trailing_bytes:
    case ErrorCode::wrong_model:
    case ErrorCode::wrong_numerics:
    case ErrorCode::bad_checksum:  // of a snapshot file; the model is intact
    case ErrorCode::position_mismatch:
    case ErrorCode::no_checkpoint:
    case ErrorCode::cannot_truncate_recurrent:
    case ErrorCode::tokens_unknown:
    case ErrorCode::token_out_of_range:
    case ErrorCode::context_full: return ExitCode::failure;
    case ErrorCode::cancelled: return ExitCode::interrupted;
  }
  return ExitCode::failure;
}

}  // namespace moeflux::cli
