#include "cli/terminal/wrapped_output.h"

#include "cli/terminal/field_wrap.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {

WrappedOutput::WrappedOutput(int output, const char* term) : output_(output) {
  if (can_move_cursor(output, term)) wrap_.emplace(screen_size(output).columns);
}

std::string WrappedOutput::bytes_for(std::string_view text) {
  if (!wrap_) return std::string(text);
  wrap_->resize(screen_size(output_).columns);  // one ioctl per piece, under 1 µs
  return wrap_->write(text);
}

std::string WrappedOutput::note_bytes(std::string_view note) {
  if (!wrap_) return std::string(note);
  end_text();
  return bytes_for(break_between_fields(note, screen_size(output_).columns));
}

void WrappedOutput::end_text() {
  if (wrap_) wrap_->end_text();
}

}  // namespace moeflux::cli
