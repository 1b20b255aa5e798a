#include "cli/terminal/cell_width.h"

#include <utf8proc.h>

#include <algorithm>

namespace moeflux::cli {

std::size_t cell_width(char32_t code_point) {
  const auto value = static_cast<utf8proc_int32_t>(code_point);
  if (utf8proc_category(value) == UTF8PROC_CATEGORY_MC) return 1;
  const bool is_hangul_tail =
      (code_point >= 0x1160 && code_point <= 0x11FF) || (code_point >= 0xD7B0 && code_point <= 0xD7FF);
  return is_hangul_tail ? 0 : static_cast<std::size_t>(std::max(0, utf8proc_charwidth(value)));
}

}  // namespace moeflux::cli
