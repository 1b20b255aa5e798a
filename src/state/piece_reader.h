#pragma once
// Reads a range of a file front to back, in pieces of bounded size, and computes the checksum of what has
// been taken. So a snapshot file is read into blocks without being in memory as a whole.
//
// The file must outlive it. One thread at a time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "base/sizes.h"
#include "io/file_system.h"

namespace moeflux {

class PieceReader {
 public:
  // The most bytes of a file that it reads at once and keeps in memory.
  static constexpr std::size_t kPieceBytes = kMiB;

  // Reads the bytes [begin, end) of `file`. Requires: begin <= end.
  PieceReader(const ReadFile& file, std::uint64_t begin, std::uint64_t end);

  // Bytes that have not been taken.
  std::uint64_t left() const { return end_ - next_ + (filled_ - used_); }

  // Takes the next bytes. Requires: left() has as many. Errors are those of the file.
  Status take(std::span<std::byte> out);
  template <class T>
  Result<T> take_word() {
    T word{};
    MF_TRY_STATUS(take(std::as_writable_bytes(std::span(&word, 1))));
    return word;
  }
  // Takes `count` bytes without returning them.
  Status skip(std::uint64_t count);

  // XXH3-64 of the bytes taken so far.
  std::uint64_t checksum();

 private:
  void hash_taken();
  Status fill();
  // The next bytes of the piece, at most `most`; reads another piece if there is none. Takes them.
  Result<std::span<const std::byte>> take_some(std::uint64_t most);

  const ReadFile& file_;
  std::uint64_t next_;  // offset of the next piece
  const std::uint64_t end_;
  std::vector<std::byte> piece_;
  std::size_t filled_ = 0, used_ = 0, hashed_ = 0;  // bytes of piece_: read, taken, in the checksum
  ChecksumStream checksum_;
};

}  // namespace moeflux
