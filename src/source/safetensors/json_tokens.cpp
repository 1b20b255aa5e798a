#include "source/safetensors/json_tokens.h"

#include <fmt/format.h>

#include "base/json/json_tokens.h"

namespace moeflux {

Status check_json_tokens(std::string_view json, std::string_view what) {
  const std::optional<BadJsonToken> bad = find_bad_json_token(json, kMaxJsonTokenBytes);
  if (!bad) return {};
  const std::string why =
      bad->kind == BadJsonToken::Kind::nul
          ? "not valid JSON: a NUL"
          : fmt::format("a string, number or space longer than {} bytes begins", kMaxJsonTokenBytes);
  return Error{ErrorCode::corrupt_data, fmt::format("{}: {} at byte {} of its JSON", what, why, bad->at)};
}

}  // namespace moeflux
