#pragma once
// Finds input that must not reach the library's streaming JSON parser.
//
// The library stores the current token twice, in buffers that grow by doubling, and once more in an error
// message: a string as long as a 32 MiB header would take five times that. It also treats a NUL byte as the
// end of its input. Callers check for both before parsing. Pure function: any thread.

#include <cstddef>
#include <optional>
#include <string_view>

namespace moeflux {

struct BadJsonToken {
  enum class Kind { nul, long_token };
  Kind kind;
  std::size_t at;  // the offset of the NUL, or of the start of the token
};

// The first NUL byte in `json`; if there is none, the first string, number or word of more than `max_bytes`,
// including the white space before it; otherwise nullopt.
std::optional<BadJsonToken> find_bad_json_token(std::string_view json, std::size_t max_bytes);

}  // namespace moeflux
