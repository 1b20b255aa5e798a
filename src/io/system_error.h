#pragma once
// Converts an errno to an Error.
//
// The only mapping from errno to ErrorCode. The fault-injecting file system uses it too, so an injected
// failure has the same code as a real one. Thread-safe.

#include <string_view>

#include "base/result.h"

namespace moeflux {

// The message is "ACTIVITY: No such file or directory". ENOENT and ENOTDIR become not_found, ENOSPC and
// EDQUOT no_space, ENOMEM out_of_memory, and all others io_failed.
Error system_error(int error_number, std::string_view activity);

}  // namespace moeflux
