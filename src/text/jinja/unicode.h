#pragma once
// Unicode as Python's str knows it: code points, classes of characters, upper and lower case.
//
// The text is valid UTF-8 wherever it is not said otherwise. Pure functions: any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moeflux::jinja {

bool is_valid_utf8(std::string_view text);
bool is_ascii(std::string_view text);

// The code point that begins at byte `at`, and its length in bytes. Any bytes: invalid ones are U+FFFD, one
// by one.
struct CodePoint {
  char32_t value;
  std::size_t bytes;
};
CodePoint code_point_at(std::string_view text, std::size_t at);
// The first byte of the code point that ends before `end`; `end` > 0.
std::size_t previous_code_point(std::string_view text, std::size_t end);

std::size_t count_code_points(std::string_view text);
// The byte at which code point `index` begins; the size of the text when there are no more than `index`.
std::size_t byte_of_code_point(std::string_view text, std::size_t index);

bool is_space(char32_t value);     // what str.strip() strips
bool is_line_end(char32_t value);  // where str.splitlines() splits ("\r\n" is one)
bool is_alphabetic(char32_t value);
bool is_decimal(char32_t value);  // a digit of positional notation
bool is_digit(char32_t value);    // these, and superscripts and the like
bool is_upper(char32_t value);
bool is_lower(char32_t value);
bool is_cased(char32_t value);
bool is_printable(char32_t value);  // repr() shows it as it is
bool is_identifier_part(char32_t value);

// The case of one character, which may become up to three. `lower` of a capital sigma is the sigma inside
// words: `at_word_end` says otherwise.
void append_upper(std::string& out, char32_t value);
void append_title(std::string& out, char32_t value);
void append_lower(std::string& out, char32_t value, bool at_word_end = false);
// Whether the capital sigma at byte `at` ends a word, which changes its lower case.
bool sigma_ends_word(std::string_view text, std::size_t at);

std::string lower_case(std::string_view text);
std::string upper_case(std::string_view text);

}  // namespace moeflux::jinja
