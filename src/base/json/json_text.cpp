#include "base/json/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/printable.h"

namespace moeflux {
namespace {

constexpr std::size_t kLongestQuote = 60;
constexpr int kNumberOverflow = 406;  // the library's error id

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// The library's message, up to where it quotes the document.
std::string_view library_words(const nlohmann::detail::exception& failure) {
  const std::string_view all = failure.what();
  return all.substr(0, all.find("; last read:"));
}

// What the grammar allows at the position of the error.
std::string_view expected_there(std::string_view words) {
  if (contains(words, "parsing object key")) return "a key in quotes";
  if (contains(words, "parsing object separator")) return "':' after the key";
  if (contains(words, "parsing object")) return "',' or '}'";
  if (contains(words, "parsing array")) return "',' or ']'";
  return "a value";
}

// What is wrong inside a string or number; nullopt if the token is valid but misplaced. The tests check that
// the library still uses these words. If it changed them, our messages would only lose detail.
std::optional<std::string_view> broken_token(std::string_view words) {
  if (contains(words, "missing closing quote")) return "string without a closing quote";
  if (contains(words, "ill-formed UTF-8")) return "invalid UTF-8 in a string";
  if (contains(words, "control character")) return "control character in a string; it must be escaped";
  if (contains(words, "surrogate")) return "half of a surrogate pair in a string";
  if (contains(words, "4 hex digits")) return "\\u without four hexadecimal digits";
  if (contains(words, "after backslash")) return "unknown escape in a string";
  if (contains(words, "invalid number")) return "number that lacks a digit";
  return std::nullopt;
}

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '+' ||
         c == '-' || c == '.';
}

struct Token {
  std::size_t begin;
  std::string shown;
};

// The token that contains the byte at `at`. For a string, `at` is its closing quote.
Token token_around(const JsonText& json, std::size_t at) {
  const std::string_view text = json.text();
  const auto quote = [&](std::size_t begin, std::size_t end) {
    return fmt::format("'{}'", printable(text.substr(begin, end - begin), kLongestQuote));
  };
  if (text[at] == '"') {
    const std::size_t begin = json.opening_quote(at);
    return {begin, "string " + quote(begin + 1, std::max(at, begin + 1))};
  }
  if (is_word(text[at])) {
    std::size_t begin = at;
    std::size_t end = at;
    while (begin > 0 && is_word(text[begin - 1])) --begin;
    while (end < text.size() && is_word(text[end])) ++end;
    return {begin, quote(begin, end)};
  }
  if (text[at] > 0x20 && text[at] < 0x7F) return {at, quote(at, at + 1)};
  return {at, fmt::format("byte 0x{:02x}", static_cast<unsigned char>(text[at]))};
}

}  // namespace

Error JsonText::error(ErrorCode code, std::size_t offset, std::string_view problem) const {
  const std::string_view before = text_.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t column = offset - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
  return Error(code, fmt::format("{}:{}:{}: {}", what_, line, column, problem));
}

Error JsonText::syntax_error(std::size_t characters_read, const nlohmann::detail::exception& failure,
                             bool document_ended) const {
  const auto corrupt = [&](std::size_t offset, std::string_view problem) {
    return error(ErrorCode::corrupt_data, offset, problem);
  };
  const std::string_view words = library_words(failure);
  const std::size_t at = std::min(characters_read == 0 ? 0 : characters_read - 1, text_.size());
  if (const auto problem = broken_token(words)) return corrupt(at, *problem);
  if (at == text_.size()) {
    return corrupt(at, fmt::format("unexpected end of the document, expected {}", expected_there(words)));
  }
  const Token token = token_around(*this, at);
  if (document_ended) {
    return corrupt(token.begin, fmt::format("unexpected {} after the end of the document", token.shown));
  }
  if (failure.id == kNumberOverflow) {
    return corrupt(token.begin, fmt::format("number {} is out of range", token.shown));
  }
  return corrupt(token.begin, fmt::format("unexpected {}, expected {}", token.shown, expected_there(words)));
}

std::size_t JsonText::opening_quote(std::size_t closing) const {
  std::size_t at = closing;
  while (at > 0) {
    if (text_[--at] != '"') continue;
    std::size_t escapes = 0;
    while (escapes < at && text_[at - escapes - 1] == '\\') ++escapes;
    if (escapes % 2 == 0) break;
  }
  return at;
}

}  // namespace moeflux
