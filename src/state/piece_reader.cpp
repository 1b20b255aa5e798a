#include "state/piece_reader.h"

#include <cstring>

#include "base/check.h"

namespace moeflux {

PieceReader::PieceReader(const ReadFile& file, std::uint64_t begin, std::uint64_t end)
    : file_(file), next_(begin), end_(end) {
  MF_REQUIRE(begin <= end, "a range begins before it ends");
  piece_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, end - begin)));
}

Status PieceReader::fill() {
  hash_taken();
  const std::span<std::byte> piece =
      std::span(piece_).first(static_cast<std::size_t>(std::min<std::uint64_t>(piece_.size(), end_ - next_)));
  MF_TRY_STATUS(file_.read_exactly(next_, piece));
  next_ += piece.size();
  filled_ = piece.size();
  used_ = hashed_ = 0;
  return {};
}

Result<std::span<const std::byte>> PieceReader::take_some(std::uint64_t most) {
  if (used_ == filled_) MF_TRY_STATUS(fill());
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(most, filled_ - used_));
  used_ += count;
  return std::span<const std::byte>(piece_).subspan(used_ - count, count);
}

Status PieceReader::take(std::span<std::byte> out) {
  MF_REQUIRE(out.size() <= left(), "the bytes that are taken are there");
  while (!out.empty()) {
    MF_TRY(const std::span<const std::byte> some, take_some(out.size()));
    std::memcpy(out.data(), some.data(), some.size());
    out = out.subspan(some.size());
  }
  return {};
}

Status PieceReader::skip(std::uint64_t count) {
  MF_REQUIRE(count <= left(), "the bytes that are skipped are there");
  while (count != 0) {
    MF_TRY(const std::span<const std::byte> some, take_some(count));
    count -= some.size();
  }
  return {};
}

void PieceReader::hash_taken() {
  checksum_.add(std::span<const std::byte>(piece_).subspan(hashed_, used_ - hashed_));
  hashed_ = used_;
}

std::uint64_t PieceReader::checksum() {
  hash_taken();
  return checksum_.value();
}

}  // namespace moeflux
