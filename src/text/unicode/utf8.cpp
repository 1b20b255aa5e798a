#include "text/unicode/utf8.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/utf8.h"

namespace moeflux {

Utf8Step utf8_step(std::string_view text) {
  using Kind = Utf8Step::Kind;
  const auto first = static_cast<unsigned char>(text[0]);
  const Utf8Lead lead = utf8_lead(first);
  if (lead.bytes == 0) return {Kind::invalid, 1, 0};
  if (lead.bytes == 1) return {Kind::character, 1, first};
  char32_t value = first & (0x7Fu >> lead.bytes);
  for (std::uint32_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Kind::incomplete, i, 0};
    const auto byte = static_cast<unsigned char>(text[i]);
    if (!lead.allows(i, byte)) return {Kind::invalid, i, 0};
    value = value << 6 | (byte & 0x3Fu);
  }
  return {Kind::character, lead.bytes, value};
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    // Eight bytes of ASCII at a time.
    if (std::uint64_t word; text.size() - at >= sizeof word) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Step::Kind::character) break;
    at += step.bytes;
  }
  return at;
}

bool is_valid_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

std::size_t previous_code_point(std::string_view valid, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && end - at < 4 && is_utf8_continuation(valid[at])) --at;
  return at;
}

CodePoint code_point_before(std::string_view valid, std::size_t end) {
  return code_point_at(valid, previous_code_point(valid, end));
}

std::size_t count_code_points(std::string_view valid) {
  return valid.size() - static_cast<std::size_t>(std::ranges::count_if(valid, is_utf8_continuation));
}

std::size_t byte_of_code_point(std::string_view valid, std::size_t index) {
  std::size_t at = 0;
  for (; at < valid.size(); ++at) {
    if (is_utf8_continuation(valid[at])) continue;
    if (index == 0) return at;
    --index;
  }
  return at;
}

void append_utf8(std::string& out, char32_t value) {
  MF_REQUIRE(value < 0x110000 && (value < 0xD800 || value > 0xDFFF),
             "a code point is a Unicode scalar value");
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (value >> shift & 0x3F)); };
  if (value < 0x80) {
    out += static_cast<char>(value);
  } else if (value < 0x800) {
    out += {static_cast<char>(0xC0 | value >> 6), tail(0)};
  } else if (value < 0x10000) {
    out += {static_cast<char>(0xE0 | value >> 12), tail(6), tail(0)};
  } else {
    out += {static_cast<char>(0xF0 | value >> 18), tail(12), tail(6), tail(0)};
  }
}

void append_lossy(std::string& out, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t valid = valid_utf8_prefix(bytes);
    out += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) return;
    out += kReplacementCharacter;
    bytes.remove_prefix(utf8_step(bytes).bytes);
  }
}

}  // namespace moeflux
