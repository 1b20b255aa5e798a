#pragma once
// Checks token ids that come from a caller. Pure function: any thread.

#include <cstddef>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace moeflux {

// `token_out_of_range`, stating the token and the size, unless all tokens are less than `vocabulary`.
Status check_vocabulary(std::span<const TokenId> tokens, std::size_t vocabulary);

}  // namespace moeflux
