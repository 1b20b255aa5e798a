#include "base/json/json_tokens.h"

namespace moeflux {
namespace {

// Single-character tokens. White space is not among them: the library stores it with the next token.
bool is_punctuation(char c) { return c == ',' || c == ':' || c == '[' || c == ']' || c == '{' || c == '}'; }

}  // namespace

// Tracks only strings and their escapes. That is enough: the parser stops where the document is not JSON, and
// up to there both agree on where tokens begin.
std::optional<BadJsonToken> find_bad_json_token(std::string_view json, std::size_t max_bytes) {
  if (const std::size_t nul = json.find('\0'); nul != std::string_view::npos)
    return BadJsonToken{BadJsonToken::Kind::nul, nul};
  bool in_string = false;
  std::size_t begin = 0;  // of the token
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (i - begin > max_bytes) return BadJsonToken{BadJsonToken::Kind::long_token, begin};
    if (in_string) {
      if (json[i] == '\\') {
        ++i;
      } else if (json[i] == '"') {
        in_string = false;
        begin = i + 1;
      }
    } else if (json[i] == '"') {
      in_string = true;
      begin = i;
    } else if (is_punctuation(json[i])) {
      begin = i + 1;
    }
  }
  return std::nullopt;
}

}  // namespace moeflux
