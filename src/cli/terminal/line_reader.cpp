#include "cli/terminal/line_reader.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "cli/terminal/utf8.h"
#include "io/system_error.h"

namespace moeflux::cli {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;

// Waits for input and appends it; 0 bytes at the end of the input.
Result<std::size_t> read_more(int input, std::string& buffer) {
  const std::size_t have = buffer.size();
  buffer.resize(have + kReadBytes);
  for (;;) {
    const ssize_t got = ::read(input, buffer.data() + have, kReadBytes);
    if (got >= 0) {
      buffer.resize(have + static_cast<std::size_t>(got));
      return static_cast<std::size_t>(got);
    }
    if (errno == EAGAIN) {
      pollfd end = {.fd = input, .events = POLLIN, .revents = 0};
      (void)::poll(&end, 1, -1);
    } else if (errno != EINTR) {
      buffer.resize(have);
      return system_error(errno, "reading a line from the input");
    }
  }
}

Error too_long(std::size_t max_line_bytes) {
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("reading a line from the input: expected at most {} bytes, found more", max_line_bytes)};
}

Result<std::optional<std::string>> text_of(std::string_view line, std::size_t max_line_bytes) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.size() > max_line_bytes) return too_long(max_line_bytes);
  return std::optional<std::string>(clean_utf8(line));
}

}  // namespace

LineReader::LineReader(int input, std::size_t max_line_bytes)
    : input_(input), max_line_bytes_(max_line_bytes) {}

Result<std::optional<std::string>> LineReader::next() {
  for (;;) {
    const std::size_t feed = buffer_.find('\n', searched_);
    if (feed != std::string::npos) {
      const std::string_view line = std::string_view(buffer_).substr(begin_, feed - begin_);
      begin_ = searched_ = feed + 1;
      if (!std::exchange(is_skipping_, false)) return text_of(line, max_line_bytes_);
      continue;
    }
    if (!is_skipping_ && buffer_.size() - begin_ > max_line_bytes_ + 1) {
      is_skipping_ = true;
      return too_long(max_line_bytes_);
    }
    buffer_.erase(0, is_skipping_ ? buffer_.size() : begin_);
    begin_ = 0;
    searched_ = buffer_.size();
    MF_TRY(const std::size_t got, read_more(input_, buffer_));
    if (got > 0) continue;
    const std::string rest = std::exchange(buffer_, {});
    searched_ = 0;
    if (std::exchange(is_skipping_, false) || rest.empty()) return std::optional<std::string>();
    return text_of(rest, max_line_bytes_);
  }
}

}  // namespace moeflux::cli
