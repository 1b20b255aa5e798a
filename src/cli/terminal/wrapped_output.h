#pragma once
// Formats replies and notes for an output: wrapped at words on a terminal, unchanged in a file or a pipe. One
// thread at a time.

#include <optional>
#include <string>
#include <string_view>

#include "cli/terminal/word_wrap.h"

namespace moeflux::cli {

class WrappedOutput {
 public:
  // `term` is the environment's TERM, or null.
  WrappedOutput(int output, const char* term);

  bool wraps() const { return wrap_.has_value(); }

  // The bytes to write for `text`. Where wraps(), requires what WordWrap::write() requires.
  std::string bytes_for(std::string_view text);
  // The same for a note, which is a text of its own. Rows of fields, "a · b", break between the fields.
  std::string note_bytes(std::string_view note);
  // The text is complete; the next one begins a row.
  void end_text();

 private:
  int output_;
  std::optional<WordWrap> wrap_;
};

}  // namespace moeflux::cli
