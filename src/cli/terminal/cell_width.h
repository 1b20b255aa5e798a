#pragma once
// The number of terminal cells that a code point fills. Pure functions; any thread.

#include <cstddef>

namespace moeflux::cli {

inline constexpr std::size_t kTabColumns = 8;  // from one tab stop to the next

// 2 for CJK and emoji, 0 for combining marks and the later parts of a Hangul syllable, otherwise 1. This is
// how terminals count; they give a spacing mark its own cell.
std::size_t cell_width(char32_t code_point);

}  // namespace moeflux::cli
