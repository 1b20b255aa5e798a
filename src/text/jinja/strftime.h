#pragma once
// Time as text, as Python's strftime() writes it in the C locale. Pure function: any thread.
//
// Our own, because the C library's depends on locale and time zone of the process, which a library does not
// touch.

#include <ctime>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux::jinja {

// A directive that is not known, or needs a time zone, is `unsupported`. "%-d" and the like leave out zeros.
Result<std::string> format_time(std::string_view format, const std::tm& time);

}  // namespace moeflux::jinja
