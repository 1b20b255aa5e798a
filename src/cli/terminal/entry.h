#pragma once
// When a text that may have several lines is complete, and what it then says.
//
// A line that ends in a backslash (an odd number of them) goes on in the next. A text that begins with """
// goes on until """ closes it; the quotes are not part of what it says. Pure functions: any thread.

#include <string>
#include <string_view>

namespace moeflux::cli {

enum class EntryState {
  complete,
  ends_in_backslash,  // which is to be replaced by a newline
  in_block,           // a """ is open
};

EntryState entry_state(std::string_view text);

// What a complete text says: without the quotes of a block, and without the newlines next to them.
std::string entry_content(std::string_view text);

}  // namespace moeflux::cli
