#pragma once
// The check that an opened path is a regular file. Thread-safe.

#include <sys/stat.h>

#include <filesystem>

#include "base/result.h"

namespace moeflux {

// `unsupported`, naming the path and what it is instead, unless `mode` (stat::st_mode) is that of a regular
// file.
Status require_regular_file(mode_t mode, const std::filesystem::path& path);

}  // namespace moeflux
