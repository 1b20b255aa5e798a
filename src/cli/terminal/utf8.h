#pragma once
// UTF-8 as a terminal needs it: bytes that may be anything become valid text, and text is walked by what a
// reader takes for one character (a grapheme cluster: a letter with its accents, a family of emoji). "Text"
// is valid UTF-8 in all of this folder; a border is a place between two clusters, or an end of the text.
// Pure: any thread.

#include <cstddef>
#include <string>
#include <string_view>

namespace moeflux::cli {

// What is not UTF-8 becomes U+FFFD: text/utf8.h. Byte by byte: text/utf8_stream.h.
std::string clean_utf8(std::string_view bytes);

// What may enter a text from a paste or a file: valid UTF-8, line ends as LF, no control characters but LF
// and TAB.
std::string clean_text(std::string_view bytes);

struct CodePoint {
  char32_t value;
  std::size_t bytes;
};
// The one at `at` < text.size(), which must be the beginning of one.
CodePoint code_point_at(std::string_view text, std::size_t at);

bool is_control(char32_t code_point);  // C0, DEL and C1

// The border after `border` < text.size().
std::size_t next_border(std::string_view text, std::size_t border);
// The nearest border before `at`, which is 0 for 0.
std::size_t border_before(std::string_view text, std::size_t at);
// `at` if it is a border, or else the next one.
std::size_t border_from(std::string_view text, std::size_t at);

}  // namespace moeflux::cli
