#pragma once
// Makes text from a file safe to show in a message: names in a hostile file may be very long or contain
// control characters, and neither may reach a terminal. Pure function: any thread.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace moeflux {

// At most the first `limit` bytes of `text`, followed by "..." if it is longer. Never cuts a UTF-8 character
// in half. Control characters, including U+0080–U+009F of ISO 6429, become '?'.
inline std::string printable(std::string_view text, std::size_t limit = 120) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t end = text.size();
  if (end > limit) {
    end = limit;
    while (end > 0 && limit - end < 4 && is_utf8_continuation(text[end])) --end;
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
