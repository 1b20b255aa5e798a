#pragma once
// Makes text from a model safe to print on a terminal. Pure function; any thread.

#include <string>
#include <string_view>

namespace moeflux::cli {

// Returns `text` with control characters other than newline and tab escaped as \xNN, so that a model cannot
// send terminal sequences.
std::string escape_controls(std::string_view text);

}  // namespace moeflux::cli
