#pragma once
// A file in memory that records how it is read, and that fails or ends early on demand. Test code only.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "io/file_system.h"

namespace moeflux {

class RecordedFile final : public ReadFile {
 public:
  struct Read {
    std::uint64_t offset;
    std::size_t bytes;  // that were asked for
  };

  explicit RecordedFile(std::span<const std::byte> bytes) : ReadFile("recorded"), bytes_(bytes) {}

  Result<std::uint64_t> size() const override { return std::uint64_t{bytes_.size()}; }
  Result<std::size_t> read_some(std::uint64_t offset, std::span<std::byte> out) const override {
    reads.push_back({offset, out.size()});
    if (reads.size() > fails_after) return Error(ErrorCode::io_failed, "the disk is gone");
    const std::uint64_t end = std::min<std::uint64_t>(bytes_.size(), ends_at);
    if (offset >= end) return std::size_t{0};
    const std::size_t count = std::min<std::uint64_t>({out.size(), end - offset, longest_read});
    std::memcpy(out.data(), bytes_.data() + offset, count);
    read_bytes += count;
    return count;
  }

  std::size_t most_asked() const {
    std::size_t most = 0;
    for (const Read& read : reads) most = std::max(most, read.bytes);
    return most;
  }

  std::size_t longest_read = std::numeric_limits<std::size_t>::max();
  std::size_t fails_after = std::numeric_limits<std::size_t>::max();
  std::uint64_t ends_at = std::numeric_limits<std::uint64_t>::max();  // whatever size() returns
  mutable std::vector<Read> reads;
  mutable std::uint64_t read_bytes = 0;

 private:
  const std::span<const std::byte> bytes_;
};

}  // namespace moeflux
