#pragma once
// What a streaming JSON parser must not be given.
//
// The library keeps the token it is reading twice, in buffers that grow by doubling, and once more in the
// message of an error: a string as long as a 32 MiB header would cost five times that. It also takes a NUL
// byte for the end of its input. Both are looked for before it starts. Pure function: any thread.

#include <cstddef>
#include <string_view>

#include "base/result.h"

namespace moeflux {

// Of a string, a number or a word, with the space before it, which the library keeps as well.
inline constexpr std::size_t kMaxJsonTokenBytes = 1u << 20;

// `what` names the document in messages.
Status check_json_tokens(std::string_view json, std::string_view what);

}  // namespace moeflux
