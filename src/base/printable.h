#pragma once
// Text from a file, made fit for a message: names in a hostile file may be endless or hold control
// characters, and neither may reach a terminal. Pure function: any thread.

#include <cstddef>
#include <string>
#include <string_view>

namespace moeflux {

// At most `limit` bytes of `text`, with "..." when that is not all of it and never half a UTF-8 character.
// Control characters, those of ISO 6429 from U+0080 to U+009F included, become '?'.
inline std::string printable(std::string_view text, std::size_t limit = 120) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t end = text.size();
  if (end > limit) {
    end = limit;
    while (end > 0 && limit - end < 4 && (byte(end) & 0xC0) == 0x80) --end;
  }
  std::string out;
  out.reserve(end + 3);
  for (std::size_t i = 0; i < end; ++i) {
    const bool escape = byte(i) == 0xC2 && i + 1 < end && byte(i + 1) >= 0x80 && byte(i + 1) <= 0x9F;
    out += escape || byte(i) < 0x20 || byte(i) == 0x7F ? '?' : text[i];
    if (escape) ++i;
  }
  if (end < text.size()) out += "...";
  return out;
}

}  // namespace moeflux
