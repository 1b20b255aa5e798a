#pragma once
// UTF-8 for the terminal: turns any bytes into valid text, and steps through text by grapheme clusters, each
// of which a user sees as one character (a letter with its accents, a family of emoji).
//
// In this folder "text" is valid UTF-8, and a border is a place between two clusters or an end of the text.
// text/unicode/utf8.h decodes code points. Pure functions, thread-safe.

#include <cstddef>
#include <string>
#include <string_view>

#include "text/unicode/utf8.h"

namespace moeflux::cli {

// Replaces invalid bytes with U+FFFD, as text/unicode/utf8.h does. For a stream of bytes see
// text/unicode/utf8_stream.h.
std::string clean_utf8(std::string_view bytes);

// Cleans text from a paste or a file: valid UTF-8, line ends as LF, no control characters except LF and TAB.
std::string clean_text(std::string_view bytes);

bool is_control(char32_t code_point);  // C0, DEL and C1

// The first border after `border`. Requires: `border` < text.size().
std::size_t next_border(std::string_view text, std::size_t border);
// The nearest border before `at`; 0 for 0.
std::size_t border_before(std::string_view text, std::size_t at);
// `at` if it is a border, otherwise the next border.
std::size_t border_from(std::string_view text, std::size_t at);

}  // namespace moeflux::cli
