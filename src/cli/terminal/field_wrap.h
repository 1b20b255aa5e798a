#pragma once
// Breaks lines of fields, "a · b · c", between the fields: "1.2 GB/s" stays on one row. Pure function; any
// thread.

#include <cstddef>
#include <string>
#include <string_view>

namespace moeflux::cli {

// Returns `text` with a line break before each separator whose field would extend past `columns`; the
// separator begins the next row. A field wider than a row is not broken. Requires: valid UTF-8, columns > 0.
std::string break_between_fields(std::string_view text, std::size_t columns);

}  // namespace moeflux::cli
