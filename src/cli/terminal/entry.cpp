#include "cli/terminal/entry.h"

#include <cstddef>

namespace moeflux::cli {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

}  // namespace

EntryState entry_state(std::string_view text) {
  if (text.starts_with(kQuotes)) {
    return text.find(kQuotes, kQuotes.size()) == std::string_view::npos ? EntryState::in_block
                                                                        : EntryState::complete;
  }
  const std::size_t last = text.find_last_not_of('\\');
  const std::size_t backslashes = text.size() - (last == std::string_view::npos ? 0 : last + 1);
  return backslashes % 2 == 1 ? EntryState::ends_in_backslash : EntryState::complete;
}

std::string entry_content(std::string_view text) {
  if (!text.starts_with(kQuotes)) return std::string(text);
  text.remove_prefix(kQuotes.size());
  const std::size_t close = text.find(kQuotes);
  std::string_view inside = text.substr(0, close);
  std::string_view after =
      close == std::string_view::npos ? std::string_view() : text.substr(close + kQuotes.size());
  if (inside.starts_with('\n')) inside.remove_prefix(1);
  if (inside.ends_with('\n')) inside.remove_suffix(1);
  return std::string(inside) + std::string(after);
}

}  // namespace moeflux::cli
