#include "cli/input.h"

#include <fmt/format.h>

#include <vector>

#include "base/printable.h"
#include "base/sizes.h"

namespace moeflux::cli {
namespace {

// Reads the next line without its newline, or the start of one that is too long. False at the end of the
// input.
bool read_line(std::istream& in, std::string& line) {
  line.clear();
  std::streambuf& buffer = *in.rdbuf();
  for (int c = buffer.sbumpc(); c != std::char_traits<char>::eof(); c = buffer.sbumpc()) {
    if (c == '\n') return true;
    line += static_cast<char>(c);
    if (line.size() > kMaxLineBytes) return true;
  }
  return !line.empty();
}

}  // namespace

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

Status for_each_line(std::istream& in,
                     FunctionRef<Status(const std::string& line, std::uint64_t number)> each) {
  std::string line;
  for (std::uint64_t number = 1; read_line(in, line); ++number) {
    if (line.size() > kMaxLineBytes)
      return Error{ErrorCode::unsupported, fmt::format("line {} has {}, a line has at most {}", number,
                                                       human_bytes(line.size()), human_bytes(kMaxLineBytes))};
    if (!line.empty() && line.back() == '\r') line.pop_back();
    MF_TRY_STATUS(each(line, number));
  }
  if (in.bad()) return Error{ErrorCode::io_failed, "cannot read standard input"};
  return {};
}

Result<std::string> read_flag_file(FileSystem& files, std::string_view flag, const std::string& path,
                                   std::uint64_t limit_bytes) {
  Result<std::string> text = files.read_text(path, limit_bytes);
  if (!text) return in_flag_file(flag, std::move(text).error());
  return text;
}

Error in_flag_file(std::string_view flag, Error error) {
  if (error.code() != ErrorCode::not_found) return error;
  return Error{ErrorCode::invalid_argument, fmt::format("{}: {}", flag, error.message())};
}

Result<NamedText> read_file_or_input(FileSystem& files, std::string_view flag, const std::string& path,
                                     std::istream& in, std::uint64_t limit_bytes) {
  NamedText read;
  if (path == "-") {
    read.name = kStandardInput;
    MF_TRY(read.text, read_all(in, limit_bytes, read.name));
    return read;
  }
  read.name = path;
  MF_TRY(read.text, read_flag_file(files, flag, path, limit_bytes));
  return read;
}

Result<Json> parse_template_kwargs(std::string_view text) {
  if (text.empty()) return Json(Json::object());
  Result<Json> kwargs = parse_json(text, "--chat-template-kwargs");
  if (!kwargs) return Error{ErrorCode::invalid_argument, kwargs.error().message()};
  if (kwargs->is_object()) return kwargs;
  return Error{ErrorCode::invalid_argument,
               fmt::format("--chat-template-kwargs takes a JSON object, found '{}'", printable(text))};
}

}  // namespace moeflux::cli
