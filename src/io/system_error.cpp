#include "io/system_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace moeflux {
namespace {

ErrorCode code_of(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR: return ErrorCode::not_found;
    case ENOSPC:
    case EDQUOT: return ErrorCode::no_space;
    case ENOMEM: return ErrorCode::out_of_memory;
    default: return ErrorCode::io_failed;
  }
}

}  // namespace

Error system_error(int error_number, std::string_view activity) {
  return {code_of(error_number),
          fmt::format("{}: {}", activity, std::generic_category().message(error_number))};
}

}  // namespace moeflux
