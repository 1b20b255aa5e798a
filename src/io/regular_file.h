#pragma once
// The check that an opened path is a regular file. Thread-safe.

#include <sys/stat.h>

#include <filesystem>

#include "base/result.h"

namespace moeflux {

// Returns `unsupported`, naming the path and the kind of file found, unless `mode` (stat::st_mode) denotes a
// regular file.
Status require_regular_file(mode_t mode, const std::filesystem::path& path);

}  // namespace moeflux
