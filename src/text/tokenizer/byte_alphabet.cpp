#include "text/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/unicode/utf8.h"

namespace moeflux {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char16_t, 256> character{};
  std::array<std::int16_t, 512> byte{};  // by character; -1: not in the alphabet

  constexpr Alphabet() {
    for (std::int16_t& none : byte) none = -1;
    char16_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = stands_for_itself(b) ? static_cast<char16_t>(b) : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

char32_t alphabet_character(unsigned char byte) { return kAlphabet.character[byte]; }

void append_spelled(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) append_utf8(out, alphabet_character(static_cast<unsigned char>(byte)));
}

std::optional<std::string> bytes_of_spelled(std::string_view spelled) {
  std::string bytes;
  bytes.reserve(spelled.size());
  for (std::size_t at = 0; at < spelled.size();) {
    const CodePoint point = code_point_at(spelled, at);
    at += point.bytes;
    if (point.value >= kAlphabet.byte.size() || kAlphabet.byte[point.value] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte[point.value]);
  }
  return bytes;
}

}  // namespace moeflux
