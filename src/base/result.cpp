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
  }
  return "unknown";
}

}  // namespace moeflux
