#include "io/file_system.h"

#include <fmt/format.h>

#include <array>

namespace moeflux {
namespace {

Error too_large(const std::filesystem::path& path, std::uint64_t size_bytes, std::uint64_t limit_bytes) {
  return {ErrorCode::unsupported, fmt::format("'{}' is too large: expected at most {} bytes, found {}",
                                              path.native(), limit_bytes, size_bytes)};
}

}  // namespace

Status ReadFile::read_exactly(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    MF_TRY(const std::size_t count, read_some(offset + done, out.subspan(done)));
    if (count == 0) {
      return Error{
          ErrorCode::corrupt_data,
          fmt::format("'{}' ends early: expected {} bytes at offset {}, found {}; the file is incomplete or "
                      "was shortened while in use",
                      path_.native(), out.size(), offset, done)};
    }
    done += count;
  }
  return {};
}

Result<bool> FileSystem::exists(const std::filesystem::path& path) {
  const Result<FileInfo> found = info(path);
  if (found) return true;
  if (found.error().code() == ErrorCode::not_found) return false;
  return found.error();
}

Result<std::string> FileSystem::read_text(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  MF_TRY(const std::unique_ptr<ReadFile> file, open_read(path));
  MF_TRY(const std::uint64_t size_bytes, file->size());
  if (size_bytes > limit_bytes) return too_large(path, size_bytes, limit_bytes);

  std::string text(size_bytes, '\0');
  MF_TRY_STATUS(file->read_exactly(0, std::as_writable_bytes(std::span(text))));

  // The file may have grown, and files of /proc report a size of 0: only a read finds the end.
  std::array<char, 4096> more;
  while (true) {
    MF_TRY(const std::size_t count, file->read_some(text.size(), std::as_writable_bytes(std::span(more))));
    if (count == 0) return text;
    text.append(more.data(), count);
    if (text.size() > limit_bytes) return too_large(path, text.size(), limit_bytes);
  }
}

}  // namespace moeflux
