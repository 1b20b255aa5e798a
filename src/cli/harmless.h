#pragma once
// What a model writes, made harmless for a terminal. Pure function; any thread.

#include <string>
#include <string_view>

namespace moeflux::cli {

// `text` with control characters other than newline and tab written as \xNN: a model cannot move the cursor.
std::string harmless(std::string_view text);

}  // namespace moeflux::cli
