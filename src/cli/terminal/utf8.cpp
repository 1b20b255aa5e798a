#include "cli/terminal/utf8.h"

#include <utf8proc.h>

#include "base/check.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

// A border at or before `at` from which clusters can be found without knowing what stands before it: the
// beginning, or between two ASCII characters (CR LF would be the exception; text has no CR).
std::size_t known_border(std::string_view text, std::size_t at) {
  while (at > 0 && (at == text.size() || !is_ascii(text[at]) || !is_ascii(text[at - 1]))) --at;
  return at;
}

}  // namespace

void Utf8Cleaner::push(char byte, std::string& out) {
  const auto value = static_cast<unsigned char>(byte);
  if (have_ > 0) {
    if (value >= low_ && value <= high_) {
      bytes_[have_++] = byte;
      low_ = 0x80;
      high_ = 0xBF;
      if (have_ == need_) {
        out.append(bytes_.data(), have_);
        have_ = 0;
      }
      return;
    }
    finish(out);
  }
  if (value < 0x80) {
    out += byte;
    return;
  }
  if (value < 0xC2 || value > 0xF4) {
    out += kReplacement;
    return;
  }
  // The second byte decides about forms that are too long, surrogates, and what is beyond U+10FFFF.
  low_ = value == 0xE0 ? 0xA0 : value == 0xF0 ? 0x90 : 0x80;
  high_ = value == 0xED ? 0x9F : value == 0xF4 ? 0x8F : 0xBF;
  need_ = value < 0xE0 ? 2 : value < 0xF0 ? 3 : 4;
  bytes_[0] = byte;
  have_ = 1;
}

void Utf8Cleaner::finish(std::string& out) {
  if (have_ > 0) out += kReplacement;
  have_ = 0;
  low_ = 0x80;
  high_ = 0xBF;
}

std::string clean_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Utf8Cleaner cleaner;
  for (const char byte : bytes) cleaner.push(byte, out);
  cleaner.finish(out);
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

CodePoint code_point_at(std::string_view text, std::size_t at) {
  MF_REQUIRE(at < text.size(), "a code point is asked for inside the text");
  utf8proc_int32_t value = 0;
  const utf8proc_ssize_t bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                                                  static_cast<utf8proc_ssize_t>(text.size() - at), &value);
  MF_REQUIRE(bytes > 0, "text is valid UTF-8");
  return {static_cast<char32_t>(value), static_cast<std::size_t>(bytes)};
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
