#include "base/tokens.h"

#include <fmt/format.h>

namespace moeflux {

Status check_vocabulary(std::span<const TokenId> tokens, std::size_t vocabulary) {
  for (const TokenId token : tokens)
    if (token.index() >= vocabulary)
      return Error(
          ErrorCode::token_out_of_range,
          fmt::format("token {} is out of range of the vocabulary's {} tokens", token.index(), vocabulary));
  return {};
}

}  // namespace moeflux
