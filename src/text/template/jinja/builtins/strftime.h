#pragma once
// Formats a time like Python's strftime() in the C locale. Pure function, thread-safe.
//
// Does not use the C library's strftime(), which depends on the locale and time zone of the process.

#include <ctime>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux::jinja {

// Fails with `unsupported` for an unknown directive or one that needs a time zone. "%-d" and similar omit
// leading zeros.
Result<std::string> format_time(std::string_view format, const std::tm& time);

}  // namespace moeflux::jinja
