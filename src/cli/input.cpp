#include "cli/input.h"

#include <fmt/format.h>

#include <vector>

#include "base/printable.h"
#include "base/sizes.h"

namespace moeflux::cli {

Result<std::string> read_all(std::istream& in, std::uint64_t limit_bytes, std::string_view name) {
  std::string text;
  std::vector<char> buffer(kMiB);
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    text.append(buffer.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > limit_bytes)
      return Error{ErrorCode::unsupported,
                   fmt::format("{} is longer than {}", name, human_bytes(limit_bytes))};
  }
  if (in.bad()) return Error{ErrorCode::io_failed, fmt::format("cannot read {}", name)};
  return text;
}

Result<NamedText> read_file_or_input(FileSystem& files, const std::string& path, std::istream& in,
                                     std::uint64_t limit_bytes) {
  NamedText read;
  read.name = path == "-" ? std::string(kStandardInput) : path;
  MF_TRY(read.text, path == "-" ? read_all(in, limit_bytes, read.name) : files.read_text(path, limit_bytes));
  return read;
}

Result<Json> parse_template_kwargs(std::string_view text) {
  if (text.empty()) return Json(Json::object());
  MF_TRY(Json kwargs, parse_json(text, "--chat-template-kwargs"));
  if (kwargs.is_object()) return kwargs;
  return Error{ErrorCode::invalid_argument,
               fmt::format("--chat-template-kwargs takes a JSON object, found '{}'", printable(text))};
}

}  // namespace moeflux::cli
