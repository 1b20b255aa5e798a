#pragma once
// What a command reads: standard input, a file that a flag names, a JSON object that a flag holds.

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "io/file_system.h"

namespace moeflux::cli {

inline constexpr std::string_view kStandardInput = "standard input";  // as messages call it

// The whole of a stream, at most `limit_bytes` of it.
Result<std::string> read_all(std::istream& in, std::uint64_t limit_bytes, std::string_view name);

// A text, and how messages call the place that it came from.
struct NamedText {
  std::string text, name;
};
// The file at `path`, or `in` for "-".
Result<NamedText> read_file_or_input(FileSystem& files, const std::string& path, std::istream& in,
                                     std::uint64_t limit_bytes);

// The variables of --chat-template-kwargs; an empty text has none.
Result<Json> parse_template_kwargs(std::string_view text);

}  // namespace moeflux::cli
