#include "text/template/jinja/syntax/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/printable.h"
#include "text/template/jinja/builtins/characters.h"
#include "text/unicode/utf8.h"

namespace moeflux::jinja {
namespace {

// Converts line ends to \n and removes one at the end of the template.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string source, std::string_view name) : text_(std::move(source)), source_(text_), name_(name) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) MF_TRY_STATUS(outside());
    add(TokenType::end, "");
    return std::move(tokens_);
  }

 private:
  Error error(std::string_view problem) const {
    return Error(ErrorCode::corrupt_data, fmt::format("{}:{}: {}", name_, line_, problem));
  }

  void add(TokenType type, std::string text) { tokens_.push_back({type, line_, std::move(text)}); }

  // Moves to `to` and counts lines.
  void advance(std::size_t to) {
    line_ += static_cast<std::uint32_t>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                                   source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  std::size_t skip_space(std::size_t at) const {
    while (at < source_.size()) {
      const CodePoint point = code_point_at(source_, at);
      if (!is_space(point.value)) break;
      at += point.bytes;
    }
    return at;
  }

  bool all_space(std::size_t begin, std::size_t end) const { return skip_space(begin) >= end; }

  std::size_t end_without_space(std::size_t begin, std::size_t end) const {
    while (end > begin) {
      const std::size_t last = previous_code_point(source_, end);
      if (last < begin || !is_space(code_point_at(source_, last).value)) break;
      end = last;
    }
    return end;
  }

  char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  // Adds the text before the tag at `tag`, without the whitespace that the tag's sign or lstrip_blocks
  // remove.
  void add_data(std::size_t tag, char sign, bool is_print) {
    std::size_t end = tag;
    if (sign == '-') {
      end = end_without_space(at_, tag);
    } else if (sign != '+' && !is_print) {
      const std::size_t newline = source_.substr(at_, tag - at_).rfind('\n');
      const bool in_text = newline != std::string_view::npos;
      const bool line_starts = at_ == 0 || source_[at_ - 1] == '\n';
      const std::size_t line = in_text ? at_ + newline + 1 : at_;
      if ((in_text || line_starts) && all_space(line, tag)) end = line;
    }
    if (end > at_) add(TokenType::data, std::string(source_.substr(at_, end - at_)));
    advance(tag);
  }

  // Reads the text before a tag, and the tag.
  Status outside() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        add(TokenType::data, std::string(source_.substr(at_)));
        advance(source_.size());
        return {};
      }
      const char second = source_[tag + 1];
      if (second == '%' || second == '{' || second == '#') break;
    }
    const char sign = sign_at(tag + 2);
    add_data(tag, sign, source_[tag + 1] == '{');
    const std::size_t inside = tag + 2 + (sign != '\0' ? 1 : 0);
    if (source_[tag + 1] == '#') return comment(inside);
    if (source_[tag + 1] == '{') return expression(inside, TokenType::print_begin);
    if (const auto body = raw_begin(inside)) return raw(*body);
    return expression(inside, TokenType::block_begin);
  }

  Status comment(std::size_t inside) {
    if (inside >= source_.size()) {  // Jinja accepts a comment that begins where the template ends
      advance(source_.size());
      return {};
    }
    const std::size_t end = source_.find("#}", inside);
    if (end == std::string_view::npos) return error("comment without '#}'");
    const char sign = end > inside ? sign_at(end - 1) : '\0';
    advance(after_block_end(end, sign));
    return {};
  }

  // The place after the two characters at `end` that close a comment or a block.
  std::size_t after_block_end(std::size_t end, char sign) const {
    const std::size_t behind = end + 2;
    if (sign == '-') return skip_space(behind);
    const bool newline = sign != '+' && behind < source_.size() && source_[behind] == '\n';
    return behind + (newline ? 1 : 0);
  }

  // The place after {% raw %} if it stands here.
  std::optional<std::size_t> raw_begin(std::size_t inside) const {
    std::size_t at = skip_space(inside);
    if (source_.substr(at, 3) != "raw") return std::nullopt;
    at = skip_space(at + 3);
    if (source_.substr(at, 2) == "%}") return at + 2;
    if (source_.substr(at, 3) == "-%}") return skip_space(at + 3);
    return std::nullopt;
  }

  Status raw(std::size_t body) {
    const std::uint32_t first_line = line_;
    advance(body);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      std::size_t at = skip_space(tag + 2 + (sign != '\0' ? 1 : 0));
      if (source_.substr(at, 6) != "endraw") continue;
      at = skip_space(at + 6);
      const char end_sign = sign_at(at);
      if (end_sign != '\0') ++at;
      if (source_.substr(at, 2) != "%}") continue;
      add_data(tag, sign, false);
      advance(after_block_end(at, end_sign));
      return {};
    }
    line_ = first_line;
    return error("{% raw %} without {% endraw %}");
  }

  // Reads the inside of a print or a block.
  Status expression(std::size_t inside, TokenType begin) {
    const bool is_print = begin == TokenType::print_begin;
    const std::string_view close = is_print ? "}}" : "%}";
    add(begin, "");
    advance(inside);
    open_.clear();
    while (true) {
      advance(skip_space(at_));
      if (at_ >= source_.size())
        return error(fmt::format("unexpected end of the template, expected '{}'", close));
      if (open_.empty() && closes(close, is_print)) return {};
      MF_TRY_STATUS(token());
    }
  }

  bool closes(std::string_view close, bool is_print) {
    const char sign = sign_at(at_);
    if (sign == '+' && is_print) return false;
    const std::size_t end = at_ + (sign != '\0' ? 1 : 0);
    if (source_.substr(end, 2) != close) return false;
    add(is_print ? TokenType::print_end : TokenType::block_end, "");
    advance(is_print ? (sign == '-' ? skip_space(end + 2) : end + 2) : after_block_end(end, sign));
    return true;
  }

  Status token() {
    const char c = source_[at_];
    if (is_decimal_digit(c)) return number();
    if (c == '\'' || c == '"') return string();
    const CodePoint point = code_point_at(source_, at_);
    if (is_identifier_part(point.value)) return name();
    return op();
  }

  Status name() {
    std::size_t end = at_;
    while (end < source_.size()) {
      const CodePoint point = code_point_at(source_, end);
      if (!is_identifier_part(point.value)) break;
      end += point.bytes;
    }
    add(TokenType::name, std::string(source_.substr(at_, end - at_)));
    advance(end);
    return {};
  }

  // The end of the digits from `at`, which may have single underscores between them; `at` if there are none.
  template <class IsDigit>
  std::size_t digits(std::size_t at, IsDigit is_one) const {
    std::size_t end = at;
    while (end < source_.size()) {
      const std::size_t digit = end > at && source_[end] == '_' ? end + 1 : end;
      if (digit >= source_.size() || !is_one(source_[digit])) break;
      end = digit + 1;
    }
    return end;
  }

  Status number() {
    const auto text = [&](std::size_t end) {
      std::string out(source_.substr(at_, end - at_));
      std::erase(out, '_');
      return out;
    };
    const char prefix = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    if (source_[at_] == '0' && (prefix == 'x' || prefix == 'o' || prefix == 'b')) {
      const auto is_one = [&](char c) {
        if (prefix == 'b') return c == '0' || c == '1';
        if (prefix == 'o') return c >= '0' && c <= '7';
        return is_decimal_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
      };
      const std::size_t skip = at_ + 2 < source_.size() && source_[at_ + 2] == '_' ? 3 : 2;
      const std::size_t end = digits(at_ + skip, is_one);
      if (end > at_ + skip) {
        add(TokenType::integer, text(end));
        advance(end);
        return {};
      }
    }
    const std::size_t whole = digits(at_, is_decimal_digit);
    std::size_t end = whole;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot) end = fraction(whole);
    if (end > whole) {
      add(TokenType::real, text(end));
    } else {
      // As in Python, no leading zeros, except in zero itself.
      if (source_[at_] == '0') end = digits(at_, [](char c) { return c == '0'; });
      add(TokenType::integer, text(end));
    }
    advance(end);
    return {};
  }

  std::size_t fraction(std::size_t whole) const {
    std::size_t end = whole;
    if (end < source_.size() && source_[end] == '.') {
      const std::size_t behind = digits(end + 1, is_decimal_digit);
      if (behind > end + 1) end = behind;
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      std::size_t exponent = end + 1;
      if (sign_at(exponent) != '\0') ++exponent;
      const std::size_t behind = digits(exponent, is_decimal_digit);
      if (behind > exponent) end = behind;
    }
    return end;
  }

  Status string() {
    const char quote = source_[at_];
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return error("string without a closing quote");
    MF_TRY(std::string value, unescape(source_.substr(at_ + 1, end - at_ - 1)));
    add(TokenType::string, std::move(value));
    advance(end + 1);
    return {};
  }

  // The character of `count` hexadecimal digits of `text` from `at`.
  Result<char32_t> hexadecimal(std::string_view text, std::size_t at, std::size_t count) const {
    char32_t value = 0;
    for (std::size_t i = at; i < at + count; ++i) {
      const char c = i < text.size() ? text[i] : '\0';
      const char low = static_cast<char>(c | 0x20);
      if (is_decimal_digit(c))
        value = value * 16 + static_cast<char32_t>(c - '0');
      else if (low >= 'a' && low <= 'f')
        value = value * 16 + static_cast<char32_t>(low - 'a' + 10);
      else
        return error(fmt::format("string escape without {} hexadecimal digits", count));
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      return error(
          fmt::format("string escape U+{:04X} is not a character", static_cast<std::uint32_t>(value)));
    return value;
  }

  Result<std::string> unescape(std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];  // a string does not end in a backslash
      constexpr std::string_view kFrom = "\\'\"abfnrtv";
      constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
      if (const std::size_t simple = kFrom.find(c); simple != std::string_view::npos) {
        out += kTo[simple];
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        MF_TRY(const char32_t value, hexadecimal(text, i + 1, count));
        append_utf8(out, value);
        i += count;
      } else if (c >= '0' && c <= '7') {
        char32_t value = 0;
        const std::size_t last = std::min(i + 3, text.size());
        for (; i < last && text[i] >= '0' && text[i] <= '7'; ++i)
          value = value * 8 + static_cast<char32_t>(text[i] - '0');
        --i;
        append_utf8(out, value);
      } else if (c == 'N') {
        return error("string escape \\N is not supported");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  Status op() {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view candidate : kOperators) {
      if (source_.substr(at_, candidate.size()) != candidate) continue;
      MF_TRY_STATUS(balance(candidate[0]));
      add(TokenType::op, std::string(candidate));
      advance(at_ + candidate.size());
      return {};
    }
    const CodePoint point = code_point_at(source_, at_);
    return error(fmt::format("unexpected character '{}'", printable(source_.substr(at_, point.bytes))));
  }

  Status balance(char c) {
    if (c == '(' || c == '[' || c == '{') open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c != ')' && c != ']' && c != '}') return {};
    if (open_.empty()) return error(fmt::format("unexpected '{}'", c));
    if (open_.back() != c) return error(fmt::format("unexpected '{}', expected '{}'", c, open_.back()));
    open_.pop_back();
    return {};
  }

  const std::string text_;
  const std::string_view source_;
  const std::string_view name_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  std::string open_;  // closing brackets that are still expected
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source, std::string_view name) {
  return Lexer(normalized(source), name).run();
}

}  // namespace moeflux::jinja
