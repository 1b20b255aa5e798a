#pragma once
// Lays out labeled text on the pages of `inspect` and `doctor`. Replies are wrapped by terminal/word_wrap.h.
// Pure functions; any thread.

#include <cstddef>
#include <string>
#include <string_view>

namespace moeflux::cli {

inline constexpr std::size_t kPageColumns = 100;

// "label   text", in lines of at most kPageColumns. The text starts after `label_columns`, on every line.
// Lines break at spaces, or within a long word after a whole character. Control characters become '?'.
std::string labeled_line(std::string_view label, std::size_t label_columns, std::string_view text);

}  // namespace moeflux::cli
