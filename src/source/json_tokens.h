#pragma once
// What the parsers of this folder are not given: base/json_tokens.h, with its limit and its messages. Pure function: any
// thread.

#include <cstddef>
#include <string_view>

#include "base/result.h"

namespace moeflux {

// Of a string, a number or a word, with the space before it, which the library keeps as well.
inline constexpr std::size_t kMaxJsonTokenBytes = 1u << 20;

// `what` names the document in messages.
Status check_json_tokens(std::string_view json, std::string_view what);

}  // namespace moeflux
