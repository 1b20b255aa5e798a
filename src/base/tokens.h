#pragma once
// Tokens that somebody else chose. Pure function: any thread.

#include <cstddef>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace moeflux {

// token_out_of_range, with both numbers, unless all of them are below `vocabulary`.
Status check_vocabulary(std::span<const TokenId> tokens, std::size_t vocabulary);

}  // namespace moeflux
