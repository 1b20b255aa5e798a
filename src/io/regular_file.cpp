#include "io/regular_file.h"

#include <fmt/format.h>

#include <string_view>

namespace moeflux {
namespace {

std::string_view describe(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

Status require_regular_file(mode_t mode, const std::filesystem::path& path) {
  if (S_ISREG(mode)) return {};
  return Error{ErrorCode::unsupported, fmt::format("cannot open '{}': expected a regular file, found {}",
                                                   path.native(), describe(mode))};
}

}  // namespace moeflux
