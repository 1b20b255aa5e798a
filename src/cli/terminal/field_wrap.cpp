#include "cli/terminal/field_wrap.h"

#include <algorithm>

#include "base/check.h"
#include "cli/terminal/cell_width.h"
#include "cli/terminal/utf8.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kSeparator = " · ";
constexpr std::size_t kSeparatorColumns = 3;

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint code_point = code_point_at(text, at);
    columns += cell_width(code_point.value);
    at += code_point.bytes;
  }
  return columns;
}

}  // namespace

std::string break_between_fields(std::string_view text, std::size_t columns) {
  MF_REQUIRE(columns > 0, "a terminal has at least one column");
  std::string out;
  std::size_t used = 0;  // columns of the row
  while (!text.empty()) {
    const std::size_t end_of_line = std::min(text.find('\n'), text.size());
    const std::size_t end = std::min(text.find(kSeparator), end_of_line);
    out += text.substr(0, end);
    used += columns_of(text.substr(0, end));
    text.remove_prefix(end);
    if (text.empty()) break;
    if (text.front() == '\n') {
      out += '\n';
      used = 0;
      text.remove_prefix(1);
      continue;
    }
    text.remove_prefix(kSeparator.size());
    const std::string_view next =
        text.substr(0, std::min({text.find(kSeparator), text.find('\n'), text.size()}));
    const bool fits = used + kSeparatorColumns + columns_of(next) <= columns;
    out += fits ? kSeparator : "\n" + std::string(kSeparator.substr(1));
    used = (fits ? used + 1 : 0) + kSeparatorColumns - 1;
  }
  return out;
}

}  // namespace moeflux::cli
