#pragma once
// Reads lines from a pipe or a file. No prompt, no echo, bounded memory.
//
// A line ends with LF, CR LF or the end of the input. The descriptor is borrowed, and the reader reads ahead.
// One thread at a time.

#include <cstddef>
#include <optional>
#include <string>

#include "base/result.h"

namespace moeflux::cli {

class LineReader {
 public:
  explicit LineReader(int input, std::size_t max_line_bytes);

  // The next line without its end, as valid UTF-8; nullopt at the end of the input. A line that is too long
  // is an error and is skipped.
  Result<std::optional<std::string>> next();

 private:
  int input_;
  std::size_t max_line_bytes_;
  std::string buffer_;
  std::size_t begin_ = 0;     // of the bytes not yet returned
  std::size_t searched_ = 0;  // no LF between begin_ and here
  bool is_skipping_ = false;  // inside a line that is too long
};

}  // namespace moeflux::cli
