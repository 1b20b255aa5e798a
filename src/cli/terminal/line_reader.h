#pragma once
// Lines from something that is no terminal: a pipe or a file. No prompt, no echo, bounded.
//
// A line ends with LF, CR LF or the end of the input. The descriptor is borrowed, and read ahead of. One
// thread at a time.

#include <cstddef>
#include <optional>
#include <string>

#include "base/result.h"

namespace moeflux::cli {

class LineReader {
 public:
  explicit LineReader(int input, std::size_t max_line_bytes);

  // The next line, without its end, as valid UTF-8; nothing at the end of the input. A line that is too long
  // is an error, and skipped.
  Result<std::optional<std::string>> next();

 private:
  int input_;
  std::size_t max_line_bytes_;
  std::string buffer_;
  std::size_t begin_ = 0;     // of what is not yet given out
  std::size_t searched_ = 0;  // up to here there is no LF after begin_
  bool is_skipping_ = false;  // the rest of a line that was too long
};

}  // namespace moeflux::cli
