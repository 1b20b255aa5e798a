#pragma once
// A ReadFile over bytes in memory, for readers of files whose callers may have the bytes already.
//
// The bytes must outlive it and not change. Immutable: any thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "io/file_system.h"

namespace moeflux {

class MemoryFile final : public ReadFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : ReadFile("bytes in memory"), bytes_(bytes) {}

  Result<std::uint64_t> size() const override { return std::uint64_t{bytes_.size()}; }
  Result<std::size_t> read_some(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset >= bytes_.size()) return std::size_t{0};
    const std::size_t count = std::min<std::uint64_t>(out.size(), bytes_.size() - offset);
    if (count != 0) std::memcpy(out.data(), bytes_.data() + offset, count);
    return count;
  }

 private:
  const std::span<const std::byte> bytes_;
};

}  // namespace moeflux
