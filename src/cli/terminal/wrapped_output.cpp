#include "cli/terminal/wrapped_output.h"

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

}  // namespace moeflux::cli
