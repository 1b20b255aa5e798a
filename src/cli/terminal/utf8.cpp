#include "cli/terminal/utf8.h"

#include <utf8proc.h>

namespace moeflux::cli {
namespace {

bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

// A border at or before `at` that is independent of the text before it: the beginning, or a place between two
// ASCII characters (except CR LF, but text has no CR).
std::size_t known_border(std::string_view text, std::size_t at) {
  while (at > 0 && (at == text.size() || !is_ascii(text[at]) || !is_ascii(text[at - 1]))) --at;
  return at;
}

}  // namespace

std::string clean_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  append_lossy(out, bytes);
  return out;
}

std::string clean_text(std::string_view bytes) {
  const std::string text = clean_utf8(bytes);
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint code_point = code_point_at(text, at);
    if (code_point.value == U'\r') {
      out += '\n';
      if (at + 1 < text.size() && text[at + 1] == '\n') ++at;
    } else if (code_point.value == U'\n' || code_point.value == U'\t' || !is_control(code_point.value)) {
      out.append(text, at, code_point.bytes);
    }
    at += code_point.bytes;
  }
  return out;
}

bool is_control(char32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0);
}

std::size_t next_border(std::string_view text, std::size_t border) {
  CodePoint last = code_point_at(text, border);
  utf8proc_int32_t state = 0;
  for (std::size_t at = border + last.bytes; at < text.size(); at += last.bytes) {
    if (is_ascii(text[at]) && is_ascii(text[at - 1])) return at;
    const CodePoint code_point = code_point_at(text, at);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.value),
                                         static_cast<utf8proc_int32_t>(code_point.value), &state)) {
      return at;
    }
    last = code_point;
  }
  return text.size();
}

std::size_t border_before(std::string_view text, std::size_t at) {
  if (at == 0) return 0;
  std::size_t border = known_border(text, at - 1);
  for (std::size_t next = border; next < at; next = next_border(text, next)) border = next;
  return border;
}

std::size_t border_from(std::string_view text, std::size_t at) {
  std::size_t border = known_border(text, at);
  while (border < at) border = next_border(text, border);
  return border;
}

}  // namespace moeflux::cli
