#include "base/result.h"

namespace moeflux {

std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::not_found: return "not_found";
    case ErrorCode::io_failed: return "io_failed";
    case ErrorCode::no_space: return "no_space";
    case ErrorCode::corrupt_data: return "corrupt_data";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::cancelled: return "cancelled";
    case ErrorCode::token_out_of_range: return "token_out_of_range";
    case ErrorCode::context_full: return "context_full";
    case ErrorCode::position_mismatch: return "position_mismatch";
    case ErrorCode::no_checkpoint: return "no_checkpoint";
    case ErrorCode::cannot_truncate_recurrent: return "cannot_truncate_recurrent";
    case ErrorCode::tokens_unknown: return "tokens_unknown";
    case ErrorCode::buffer_too_small: return "buffer_too_small";
    case ErrorCode::bad_magic: return "bad_magic";
    case ErrorCode::bad_version: return "bad_version";
    case ErrorCode::shape_mismatch: return "shape_mismatch";
    case ErrorCode::negative_length: return "negative_length";
    case ErrorCode::length_overflow: return "length_overflow";
    case ErrorCode::unequal_lengths: return "unequal_lengths";
    case ErrorCode::truncated: return "truncated";
    case ErrorCode::trailing_bytes: return "trailing_bytes";
    case ErrorCode::wrong_model: return "wrong_model";
    case ErrorCode::wrong_numerics: return "wrong_numerics";
    case ErrorCode::bad_checksum: return "bad_checksum";
  }
  return "unknown";
}

}  // namespace moeflux
