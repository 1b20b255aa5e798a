#include "base/json_tokens.h"

namespace moeflux {
namespace {

// A token of its own. Space is not one: the library keeps it with the token that follows.
bool is_punctuation(char c) { return c == ',' || c == ':' || c == '[' || c == ']' || c == '{' || c == '}'; }

}  // namespace

// Follows strings and their escapes only, which is enough: where the document is not JSON the parser stops,
// and up to there both agree where a token begins.
std::optional<BadJsonToken> find_bad_json_token(std::string_view json, std::size_t most_bytes) {
  if (const std::size_t nul = json.find('\0'); nul != std::string_view::npos)
    return BadJsonToken{BadJsonToken::Kind::nul, nul};
  bool in_string = false;
  std::size_t begin = 0;  // of the token
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (i - begin > most_bytes) return BadJsonToken{BadJsonToken::Kind::long_token, begin};
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
