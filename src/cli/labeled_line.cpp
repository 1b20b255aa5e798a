#include "cli/labeled_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace moeflux::cli {

std::string labeled_line(std::string_view label, std::size_t label_columns, std::string_view text) {
  const std::string clean = printable(text, std::string::npos);
  std::string_view rest = clean;
  const std::size_t room = kPageColumns - label_columns;
  std::string lines;
  bool first = true;
  while (first || !rest.empty()) {
    std::size_t take = std::min(rest.size(), room);
    if (take < rest.size()) {
      const std::size_t space = rest.rfind(' ', room);
      if (space != std::string_view::npos && space > 0) take = space;
      while (take > 1 && is_utf8_continuation(rest[take])) --take;
    }
    lines += fmt::format("{:<{}}{}\n", first ? label : "", label_columns, rest.substr(0, take));
    rest.remove_prefix(take);
    while (rest.starts_with(' ')) rest.remove_prefix(1);
    first = false;
  }
  return lines;
}

}  // namespace moeflux::cli
