#pragma once
// Decides when entered text, which may span lines, is complete, and extracts its content.
//
// A line that ends in a backslash (an odd number of them) continues on the next. A text that begins with """
// continues until """ closes it; the quotes are not part of the content. Pure functions; any thread.

#include <string>
#include <string_view>

namespace moeflux::cli {

enum class EntryState {
  complete,
  ends_in_backslash,  // continues on the next line; a newline replaces the backslash
  in_block,           // a """ is open
};

EntryState entry_state(std::string_view text);

// The content of a complete text: without the quotes of a block and the newlines next to them.
std::string entry_content(std::string_view text);

}  // namespace moeflux::cli
