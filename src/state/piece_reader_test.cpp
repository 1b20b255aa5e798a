#include "state/piece_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "state/testing/recorded_file.h"

namespace moeflux {
namespace {

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

struct OverThreePieces : testing::Test {
  std::vector<std::byte> bytes = random_bytes(2 * PieceReader::kPieceBytes + 12345);
  RecordedFile file{bytes};
  std::span<const std::byte> part(std::size_t begin, std::size_t end) const {
    return std::span(std::as_const(bytes)).subspan(begin, end - begin);
  }
};

TEST_F(OverThreePieces, TakesEveryByteOnceInOrder) {
  for (const std::size_t step : {std::size_t{1013}, std::size_t{700'000}, bytes.size()}) {
    file.reads.clear();
    file.read_bytes = 0;
    PieceReader in(file, 0, bytes.size());
    std::vector<std::byte> found(bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      EXPECT_EQ(in.left(), bytes.size() - at);
      ASSERT_TRUE(in.take(std::span(found).subspan(at, std::min(step, bytes.size() - at))));
    }
    EXPECT_EQ(in.left(), 0u);
    EXPECT_TRUE(found == bytes);
    EXPECT_EQ(file.reads.size(), 3u);
    EXPECT_EQ(file.most_asked(), PieceReader::kPieceBytes);
    EXPECT_EQ(file.read_bytes, bytes.size());
  }
}

TEST_F(OverThreePieces, HasTheChecksumOfWhatWasTakenOrSkipped) {
  PieceReader in(file, 0, bytes.size());
  EXPECT_EQ(in.checksum(), checksum_of({}));
  std::vector<std::byte> some(1000);
  ASSERT_TRUE(in.take(some));
  EXPECT_EQ(in.checksum(), checksum_of(part(0, 1000)));
  ASSERT_TRUE(in.skip(PieceReader::kPieceBytes));
  EXPECT_EQ(in.checksum(), checksum_of(part(0, 1000 + PieceReader::kPieceBytes)));
  EXPECT_EQ(in.checksum(), checksum_of(part(0, 1000 + PieceReader::kPieceBytes)));
  ASSERT_TRUE(in.skip(in.left()));
  EXPECT_EQ(in.checksum(), checksum_of(bytes));
}

TEST_F(OverThreePieces, ReadsARange) {
  PieceReader in(file, 500, 508);
  const Result<std::uint64_t> word = in.take_word<std::uint64_t>();
  ASSERT_TRUE(word);
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(&*word, 1)), part(500, 508)));
  EXPECT_EQ(in.left(), 0u);
  EXPECT_EQ(file.read_bytes, 8u) << "not more than the range";
  EXPECT_CONTRACT((void)in.skip(1), "the bytes that are skipped are there");
}

TEST_F(OverThreePieces, AcceptsShortReads) {
  file.longest_read = 1021;
  PieceReader in(file, 0, bytes.size());
  std::vector<std::byte> found(bytes.size());
  ASSERT_TRUE(in.take(found));
  EXPECT_TRUE(found == bytes);
}

TEST_F(OverThreePieces, ReturnsTheErrorOfTheFile) {
  for (const std::size_t good : {0u, 1u, 2u}) {
    file.reads.clear();
    file.fails_after = good;
    PieceReader in(file, 0, bytes.size());
    const Status skipped = in.skip(bytes.size());
    ASSERT_FALSE(skipped);
    EXPECT_EQ(skipped.error().code(), ErrorCode::io_failed);
  }
}

TEST_F(OverThreePieces, NoticesAFileThatBecameShorter) {
  file.ends_at = PieceReader::kPieceBytes + 5;
  PieceReader in(file, 0, bytes.size());
  const Status skipped = in.skip(bytes.size());
  ASSERT_FALSE(skipped);
  EXPECT_EQ(skipped.error().code(), ErrorCode::corrupt_data);
  EXPECT_THAT(skipped.error().message(), test::States("recorded", PieceReader::kPieceBytes, 5));
}

}  // namespace
}  // namespace moeflux
