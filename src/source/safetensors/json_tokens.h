#pragma once
// Rejects JSON that would make the streaming parsers of this folder use too much memory, before they run:
// applies base/json/json_tokens.h with one limit and reports an Error. Pure function: any thread.

#include <cstddef>
#include <string_view>

#include "base/result.h"

namespace moeflux {

// The longest string, number or word, including the space before it, which the JSON library buffers as well.
inline constexpr std::size_t kMaxJsonTokenBytes = 1u << 20;

// `what` names the document in messages.
Status check_json_tokens(std::string_view json, std::string_view what);

}  // namespace moeflux
