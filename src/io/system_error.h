#pragma once
// What the operating system says, as an Error.
//
// The one place that knows which errno is which ErrorCode; the fault-injecting file system uses it too, so
// a rehearsed failure has the code of a real one. Any thread.

#include <string_view>

#include "base/result.h"

namespace moeflux {

// "ACTIVITY: No such file or directory". ENOENT and ENOTDIR are not_found, ENOSPC and EDQUOT no_space,
// ENOMEM out_of_memory, all others io_failed.
Error system_error(int error_number, std::string_view activity);

}  // namespace moeflux
