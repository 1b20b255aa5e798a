#pragma once
// Characters as Python's str knows them: their classes, and upper and lower case.
//
// Every text in this folder is valid UTF-8. Pure functions, thread-safe.

#include <string>
#include <string_view>

#include "text/unicode/utf8.h"

namespace moeflux::jinja {

bool is_ascii(std::string_view text);

bool is_space(char32_t value);     // stripped by str.strip()
bool is_line_end(char32_t value);  // a line end of str.splitlines() ("\r\n" is one)
bool is_alphabetic(char32_t value);
bool is_decimal(char32_t value);  // a digit of a positional notation
bool is_digit(char32_t value);    // a decimal digit, a superscript or similar
bool is_upper(char32_t value);
bool is_lower(char32_t value);
bool is_cased(char32_t value);
bool is_printable(char32_t value);  // unescaped by repr()
bool is_identifier_part(char32_t value);

// Appends one character in another case, which may be up to three characters. A capital sigma becomes a final
// sigma if `at_word_end`.
void append_upper(std::string& out, char32_t value);
void append_title(std::string& out, char32_t value);
void append_lower(std::string& out, char32_t value, bool at_word_end = false);
// Whether the capital sigma at byte `at` ends a word and so has a final sigma as its lower case.
bool sigma_ends_word(std::string_view text, std::size_t at);

std::string lower_case(std::string_view text);
std::string upper_case(std::string_view text);

}  // namespace moeflux::jinja
