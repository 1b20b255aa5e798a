#include "cli/terminal/history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/printable.h"
#include "cli/terminal/utf8.h"
#include "io/system_error.h"
#include "io/unique_fd.h"

namespace moeflux::cli {
namespace {

constexpr std::uint64_t kMaxFileBytes = 2 * kMaxHistoryBytes;  // every byte may have been escaped

std::string escaped(std::string_view entry) {
  std::string line;
  for (const char byte : entry) {
    if (byte == '\\')
      line += "\\\\";
    else if (byte == '\n')
      line += "\\n";
    else
      line += byte;
  }
  return line;
}

// An unknown escape stands for itself.
std::string unescaped(std::string_view line) {
  std::string entry;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char next = line[i] == '\\' && i + 1 < line.size() ? line[i + 1] : '\0';
    if (next == 'n' || next == '\\') {
      entry += next == 'n' ? '\n' : '\\';
      ++i;
    } else {
      entry += line[i];
    }
  }
  return entry;
}

std::string quoted(const std::filesystem::path& path) {
  return fmt::format("'{}'", printable(path.native()));
}

// The last kMaxFileBytes of the file, from the start of a line.
Result<std::string> read_end(int fd, std::uint64_t size, const std::filesystem::path& path) {
  const std::uint64_t begin = size > kMaxFileBytes ? size - kMaxFileBytes : 0;
  std::string bytes(static_cast<std::size_t>(size - begin), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got =
        ::pread(fd, bytes.data() + have, bytes.size() - have, static_cast<off_t>(begin + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(errno, "reading the history " + quoted(path));
    if (got == 0) break;  // the file was truncated meanwhile
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  if (begin > 0) bytes.erase(0, std::min(bytes.find('\n'), bytes.size()));
  return bytes;
}

}  // namespace

void History::add(std::string_view entry) {
  if (entry.empty() || entry.size() > kMaxHistoryEntryBytes || max_entries_ == 0) return;
  std::string text = clean_text(entry);
  if (text.empty() || text.size() > kMaxHistoryEntryBytes) return;
  if (!entries_.empty() && entries_.back() == text) return;
  bytes_ += text.size();
  entries_.push_back(std::move(text));
  while (entries_.size() > max_entries_ || bytes_ > kMaxHistoryBytes) {
    bytes_ -= entries_.front().size();
    entries_.pop_front();
  }
}

Status History::load(const std::filesystem::path& path) {
  // Nonblocking: the path may be a pipe without a writer.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0 && errno == ENOENT) return {};
  if (file.get() < 0) return system_error(errno, "opening the history " + quoted(path));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return system_error(errno, "opening the history " + quoted(path));
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("opening the history {}: expected a regular file", quoted(path))};
  }
  MF_TRY(const std::string bytes, read_end(file.get(), static_cast<std::uint64_t>(status.st_size), path));
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.size() <= 2 * kMaxHistoryEntryBytes) add(unescaped(line));
  }
  return {};
}

Status History::save(const std::filesystem::path& path) const {
  const auto failed = [&](int error_number) {
    return system_error(error_number, "writing the history " + quoted(path));
  };
  std::string bytes;
  for (const std::string& entry : entries_) bytes += escaped(entry) + '\n';
  // Truncates only after setting the mode, so that other users cannot read the new contents.
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600));
  if (file.get() < 0) return failed(errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return failed(errno);
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("writing the history {}: expected a regular file", quoted(path))};
  }
  if (::fchmod(file.get(), 0600) != 0 || ::ftruncate(file.get(), 0) != 0) return failed(errno);
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t written = ::write(file.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed(errno);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

std::optional<std::string_view> HistoryWalk::older(std::string_view current) {
  if (at_ == 0) return std::nullopt;
  if (at_ == history_->entries().size()) draft_ = current;
  return history_->entries()[--at_];
}

std::optional<std::string_view> HistoryWalk::newer() {
  if (at_ == history_->entries().size()) return std::nullopt;
  if (++at_ == history_->entries().size()) return draft_;
  return history_->entries()[at_];
}

}  // namespace moeflux::cli
