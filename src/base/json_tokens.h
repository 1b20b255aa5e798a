#pragma once
// What a streaming JSON parser must not be given.
//
// The library keeps the token it is reading twice, in buffers that grow by doubling, and once more in the
// message of an error: a string as long as a 32 MiB header would cost five times that. It also takes a NUL
// byte for the end of its input. Both are looked for before it starts. Pure function: any thread.

#include <cstddef>
#include <optional>
#include <string_view>

namespace moeflux {

struct BadJsonToken {
  enum class Kind { nul, long_token };
  Kind kind;
  std::size_t at;  // the NUL, or where the token begins
};

// The first NUL of `json`; or else the first string, number, word or space, a token together with the space before it,
// of more than `most_bytes`; or nothing.
std::optional<BadJsonToken> find_bad_json_token(std::string_view json, std::size_t most_bytes);

}  // namespace moeflux
