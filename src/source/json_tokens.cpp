#include "source/json_tokens.h"

#include <fmt/format.h>

namespace moeflux {
namespace {

// A token of its own. Space is not one: the library keeps it with the token that follows.
bool is_punctuation(char c) { return c == ',' || c == ':' || c == '[' || c == ']' || c == '{' || c == '}'; }

}  // namespace

// Follows strings and their escapes only, which is enough: where the document is not JSON the parser stops,
// and up to there both agree where a token begins.
Status check_json_tokens(std::string_view json, std::string_view what) {
  const auto corrupt = [&](std::string_view why, std::size_t at) {
    return Error{ErrorCode::corrupt_data, fmt::format("{}: {} at byte {} of its JSON", what, why, at)};
  };
  if (const std::size_t nul = json.find('\0'); nul != std::string_view::npos)
    return corrupt("not valid JSON: a NUL", nul);
  bool in_string = false;
  std::size_t begin = 0;  // of the token
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (i - begin > kMaxJsonTokenBytes)
      return corrupt(fmt::format("a string, number or space longer than {} bytes begins", kMaxJsonTokenBytes),
                     begin);
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
  return {};
}

}  // namespace moeflux
