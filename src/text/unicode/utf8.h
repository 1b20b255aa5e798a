#pragma once
// UTF-8, decoded strictly: surrogates, overlong forms and values above U+10FFFF are invalid.
//
// utf8_step() is the only decoder of the program. Invalid bytes become U+FFFD, one per maximal subpart
// (Unicode, section 3.9, "U+FFFD substitution of maximal subparts"), which is what Rust's
// String::from_utf8_lossy and browsers produce. Functions that require valid text never read outside it; for
// other bytes their result is unspecified. Pure functions, thread-safe.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moeflux {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// The length of a character and the range of its second byte, by its first byte (table 3-7 of Unicode). Every
// later byte is 80 to BF.
struct Utf8Lead {
  std::uint32_t bytes;  // 0: no character begins with this byte
  unsigned char low, high;

  // Whether `byte` may be byte `i` of the character, 1 <= i < bytes.
  constexpr bool allows(std::uint32_t i, unsigned char byte) const {
    return i == 1 ? byte >= low && byte <= high : byte >= 0x80 && byte <= 0xBF;
  }
};
constexpr Utf8Lead utf8_lead(unsigned char first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xC2) return {0, 0, 0};
  if (first < 0xE0) return {2, 0x80, 0xBF};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3, 0x80, 0xBF};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first < 0xF4) return {4, 0x80, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// The first character of a text, or the reason why it has none.
struct Utf8Step {
  enum class Kind {
    character,   // a complete character: `value`
    invalid,     // a maximal subpart that no further byte can complete
    incomplete,  // the text ends inside a character
  };
  Kind kind;
  std::uint32_t bytes;  // its length: 1 to 4
  char32_t value;
};

// Requires: `text` is not empty.
Utf8Step utf8_step(std::string_view text);

// The number of leading bytes that are valid UTF-8.
std::size_t valid_utf8_prefix(std::string_view text);
bool is_valid_utf8(std::string_view text);

struct CodePoint {
  char32_t value;
  std::uint32_t bytes;
};
// The code point at byte `at` < text.size() of a valid text. A byte that begins no complete character reads
// as U+FFFD of length 1.
inline CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  const Utf8Step step = utf8_step(text.substr(at));
  if (step.kind != Utf8Step::Kind::character) return {0xFFFD, 1};
  return {step.value, step.bytes};
}

// The byte at which the code point that ends before `end` begins. Requires: 0 < end <= text.size().
std::size_t previous_code_point(std::string_view valid, std::size_t end);
// That code point.
CodePoint code_point_before(std::string_view valid, std::size_t end);

std::size_t count_code_points(std::string_view valid);
// The byte at which code point `index` begins; valid.size() if there are not more than `index` code points.
std::size_t byte_of_code_point(std::string_view valid, std::size_t index);

// Requires: `value` is a Unicode scalar value.
void append_utf8(std::string& out, char32_t value);

// Appends `bytes` with U+FFFD in place of what is not UTF-8, including an incomplete end.
void append_lossy(std::string& out, std::string_view bytes);

}  // namespace moeflux
