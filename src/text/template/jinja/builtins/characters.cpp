#include "text/template/jinja/builtins/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/unicode/utf8.h"

namespace moeflux::jinja {
namespace {

struct LongCase {
  char32_t value;
  const char32_t* upper;
  const char32_t* title;
};

constexpr LongCase kLongCases[] = {
#include "text/template/jinja/builtins/case_table.inl"
};

const LongCase* long_case(char32_t value) {
  const auto* found = std::lower_bound(std::begin(kLongCases), std::end(kLongCases), value,
                                       [](const LongCase& entry, char32_t v) { return entry.value < v; });
  return found != std::end(kLongCases) && found->value == value ? found : nullptr;
}

void append_all(std::string& out, const char32_t* values) {
  for (; *values != 0; ++values) append_utf8(out, *values);
}

utf8proc_category_t category(char32_t value) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(value));
}

bool is_letter(utf8proc_category_t c) { return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO; }

// Characters that are ignored in the search for the end of a word.
bool is_case_ignorable(char32_t value) {
  switch (value) {
    case U'\'':
    case U'.':
    case U':':
    case U'^':
    case U'`':
    case 0xA8:
    case 0xAD:
    case 0xAF:
    case 0xB4:
    case 0xB7:
    case 0xB8:
    case 0x2018:
    case 0x2019:
    case 0x2024:
    case 0x2027: return true;
    default: break;
  }
  const auto c = category(value);
  return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
         c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK;
}

}  // namespace

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_space(char32_t value) {
  if (value < 0x80) return (value >= 9 && value <= 13) || (value >= 0x1C && value <= 0x20);
  return value == 0x85 || value == 0xA0 || value == 0x1680 || (value >= 0x2000 && value <= 0x200A) ||
         value == 0x2028 || value == 0x2029 || value == 0x202F || value == 0x205F || value == 0x3000;
}

bool is_line_end(char32_t value) {
  return (value >= 0x0A && value <= 0x0D) || (value >= 0x1C && value <= 0x1E) || value == 0x85 ||
         value == 0x2028 || value == 0x2029;
}

bool is_alphabetic(char32_t value) { return is_letter(category(value)); }
bool is_decimal(char32_t value) { return category(value) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t value) {
  if (is_decimal(value)) return true;
  if (category(value) != UTF8PROC_CATEGORY_NO) return false;
  return value == 0xB2 || value == 0xB3 || value == 0xB9 || (value >= 0x1369 && value <= 0x1371) ||
         value == 0x19DA || (value >= 0x2070 && value <= 0x2089) || (value >= 0x2460 && value <= 0x2468) ||
         (value >= 0x2474 && value <= 0x247C) || (value >= 0x2488 && value <= 0x2490) || value == 0x24EA ||
         (value >= 0x24F5 && value <= 0x24FD) || value == 0x24FF || (value >= 0x2776 && value <= 0x277E) ||
         (value >= 0x2780 && value <= 0x2788) || (value >= 0x278A && value <= 0x2792) ||
         (value >= 0x10A40 && value <= 0x10A43) || (value >= 0x10E60 && value <= 0x10E68) ||
         (value >= 0x11052 && value <= 0x1105A) || (value >= 0x1F100 && value <= 0x1F10A);
}

bool is_upper(char32_t value) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(value)) != 0; }
bool is_lower(char32_t value) { return utf8proc_islower(static_cast<utf8proc_int32_t>(value)) != 0; }

bool is_cased(char32_t value) {
  return is_upper(value) || is_lower(value) || category(value) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t value) {
  if (value < 0x7F) return value >= 0x20;
  switch (category(value)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_identifier_part(char32_t value) {
  if (value == U'_') return true;
  const auto c = category(value);
  return is_letter(c) || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL ||
         c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_PC;
}

void append_upper(std::string& out, char32_t value) {
  if (const LongCase* entry = long_case(value)) return append_all(out, entry->upper);
  append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(value))));
}

void append_title(std::string& out, char32_t value) {
  if (const LongCase* entry = long_case(value)) return append_all(out, entry->title);
  append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(value))));
}

void append_lower(std::string& out, char32_t value, bool at_word_end) {
  if (value == 0x130) {  // the only character whose lower case has two code points
    out += 'i';
    return append_utf8(out, 0x307);
  }
  if (value == 0x3A3) return append_utf8(out, at_word_end ? 0x3C2 : 0x3C3);
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value))));
}

bool sigma_ends_word(std::string_view text, std::size_t at) {
  bool after_letter = false;
  for (std::size_t end = at; end > 0;) {
    end = previous_code_point(text, end);
    const char32_t value = code_point_at(text, end).value;
    if (is_case_ignorable(value)) continue;
    after_letter = is_cased(value);
    break;
  }
  if (!after_letter) return false;
  for (std::size_t next = at + code_point_at(text, at).bytes; next < text.size();) {
    const CodePoint point = code_point_at(text, next);
    if (!is_case_ignorable(point.value)) return !is_cased(point.value);
    next += point.bytes;
  }
  return true;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    append_lower(out, point.value, point.value == 0x3A3 && sigma_ends_word(text, at));
    at += point.bytes;
  }
  return out;
}

std::string upper_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    append_upper(out, point.value);
    at += point.bytes;
  }
  return out;
}

}  // namespace moeflux::jinja
