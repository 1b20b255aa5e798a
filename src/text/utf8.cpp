#include "text/utf8.h"

#include <cstring>

#include "base/check.h"

namespace moeflux {
namespace {

// How many bytes a character with this first byte has, and what the second may be (table 3-7 of Unicode).
struct Lead {
  std::uint32_t bytes;  // 0: no character begins so
  unsigned char low, high;
};

Lead lead_of(unsigned char first) {
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

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  using Kind = Utf8Step::Kind;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.bytes == 0) return {Kind::invalid, 1, 0};
  for (std::uint32_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {Kind::incomplete, i, 0};
    const unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Kind::invalid, i, 0};
  }
  return {Kind::character, lead.bytes, code_point_at(text, 0).code};
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

CodePoint code_point_before(std::string_view valid, std::size_t end) {
  std::size_t begin = end - 1;
  while ((static_cast<unsigned char>(valid[begin]) & 0xC0) == 0x80) --begin;
  return code_point_at(valid, begin);
}

void append_utf8(std::string& out, char32_t code) {
  MF_REQUIRE(code < 0x110000 && (code < 0xD800 || code > 0xDFFF), "a code point is a Unicode scalar value");
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += {static_cast<char>(0xC0 | code >> 6), tail(0)};
  } else if (code < 0x10000) {
    out += {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
  } else {
    out += {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
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
