#pragma once
// Inputs of a command: standard input, files that flags name, JSON in flags.

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/json/json.h"
#include "base/result.h"
#include "base/sizes.h"
#include "io/file_system.h"

namespace moeflux::cli {

// Gets the output of a command piece by piece; its failure ends the command.
using Output = FunctionRef<Status(std::string_view)>;

inline constexpr std::uint64_t kMaxInputBytes = 1024 * kMiB;
inline constexpr std::string_view kStandardInput = "standard input";  // its name in messages

// Reads the rest of a stream, at most `limit_bytes`.
Result<std::string> read_all(std::istream& in, std::uint64_t limit_bytes, std::string_view name);

inline constexpr std::uint64_t kMaxLineBytes = 64 * kMiB;

// Calls `each(line, number)` for every line of `in`, without its newline; numbers begin at 1. A line of more
// than kMaxLineBytes is unsupported.
Status for_each_line(std::istream& in,
                     FunctionRef<Status(const std::string& line, std::uint64_t number)> each);

// Reads the file at `path`, which `flag` names. A missing file is invalid_argument: the command line is
// wrong, not the model.
Result<std::string> read_flag_file(FileSystem& files, std::string_view flag, const std::string& path,
                                   std::uint64_t limit_bytes);

// Makes not_found invalid_argument, with the name of `flag`; for files that a measuring layer reads.
Error in_flag_file(std::string_view flag, Error error);

// A text, and the name of its place in messages.
struct NamedText {
  std::string text, name;
};
// Reads the file at `path` like read_flag_file(), or `in` for "-".
Result<NamedText> read_file_or_input(FileSystem& files, std::string_view flag, const std::string& path,
                                     std::istream& in, std::uint64_t limit_bytes);

// How conversations become prompts: flags of `run`, `chat` and `template`.
struct RenderingFlags {
  std::string tools;          // a JSON file; empty: none
  std::string chat_template;  // a Jinja file; empty: the model's own template
  std::string kwargs;         // a JSON object of further variables for the template
};

inline constexpr std::string_view kToolsFlag = "--tools", kChatTemplateFlag = "--chat-template";
inline constexpr std::uint64_t kMaxTemplateBytes = 16 * kMiB;  // of each file above

// The variables of --chat-template-kwargs; none for an empty text.
Result<Json> parse_template_kwargs(std::string_view text);

}  // namespace moeflux::cli
