#pragma once
// UTF-8, read strictly: no surrogates, no overlong forms, nothing beyond U+10FFFF.
//
// What is not UTF-8 becomes U+FFFD, one for each maximal subpart (Unicode, section 3.9, "U+FFFD substitution
// of maximal subparts"): the same text as Rust's String::from_utf8_lossy and every browser give. Pure
// functions: any thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moeflux {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What the next bytes of a text are.
struct Utf8Step {
  enum class Kind {
    character,   // a whole one, `code`
    invalid,     // a maximal subpart that no further byte can make whole
    incomplete,  // the text ends within a character
  };
  Kind kind;
  std::uint32_t bytes;  // that it takes: 1 to 4
  char32_t code;
};

// Requires a text that is not empty.
Utf8Step utf8_step(std::string_view text);

// How many bytes from the beginning are valid UTF-8.
std::size_t valid_utf8_prefix(std::string_view text);

// The code point at `at` of a valid text, and how many bytes it takes.
struct CodePoint {
  char32_t code;
  std::uint32_t bytes;
};
inline CodePoint code_point_at(std::string_view valid, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(valid[at + i]));
  };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}
// The one that ends at `end` > 0 of a valid text.
CodePoint code_point_before(std::string_view valid, std::size_t end);

// Requires a Unicode scalar value.
void append_utf8(std::string& out, char32_t code);

// Appends `bytes` with U+FFFD for what is not UTF-8, an incomplete end included.
void append_lossy(std::string& out, std::string_view bytes);

}  // namespace moeflux
