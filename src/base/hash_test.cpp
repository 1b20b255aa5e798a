#include "base/hash.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fmt/format.h>

#include <string>
#include <vector>

namespace moeflux {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest.bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// The published values of XXH3 with seed 0.
TEST(Checksum, OfNoBytesIsThePublishedValue) {
  EXPECT_EQ(checksum_of({}), 0x2d06800538d394c2u);
  EXPECT_EQ(ChecksumStream().value(), 0x2d06800538d394c2u);
}

TEST(Digest, OfNoBytesIsThePublishedValueInCanonicalOrder) {
  EXPECT_EQ(hex(digest_of("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(DigestStream().value(), digest_of(""));
}

TEST(Digest, ComparesLikeItsHexadecimalDigits) {
  const Digest a = digest_of("a"), b = digest_of("b");
  EXPECT_NE(a, b);
  EXPECT_EQ(a < b, hex(a) < hex(b));
}

TEST(ChecksumStream, ReturnsIntermediateValues) {
  ChecksumStream stream;
  stream.add(bytes_of("ab"));
  EXPECT_EQ(stream.value(), checksum_of(bytes_of("ab")));
  EXPECT_EQ(stream.value(), checksum_of(bytes_of("ab")));
  stream.add(bytes_of("c"));
  EXPECT_EQ(stream.value(), checksum_of(bytes_of("abc")));
}

TEST(DigestStream, TreatsTextAndBytesAlike) {
  DigestStream text, bytes;
  text.add("weights");
  bytes.add(bytes_of("weights"));
  EXPECT_EQ(text.value(), bytes.value());
  EXPECT_EQ(text.value(), digest_of("weights"));
}

RC_GTEST_PROP(HashStreams, HashPiecesLikeTheWhole, (const std::vector<std::string>& pieces)) {
  std::string whole;
  ChecksumStream checksum;
  DigestStream digest;
  for (const std::string& piece : pieces) {
    whole += piece;
    checksum.add(bytes_of(piece));
    digest.add(piece);
  }
  RC_ASSERT(checksum.value() == checksum_of(bytes_of(whole)));
  RC_ASSERT(digest.value() == digest_of(whole));
}

// Longer than the 256 KiB buffer of the algorithm, and cut at places that are not its block boundaries.
TEST(HashStreams, DoNotDependOnWhereALongTextIsCut) {
  std::string whole(300'001, '\0');
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<char>(i * 2654435761u >> 13);
  for (const std::size_t step : {1009u, 4096u, 65537u}) {
    ChecksumStream checksum;
    DigestStream digest;
    for (std::size_t at = 0; at < whole.size(); at += step) {
      const std::string_view piece = std::string_view(whole).substr(at, step);
      checksum.add(bytes_of(piece));
      digest.add(piece);
    }
    EXPECT_EQ(checksum.value(), checksum_of(bytes_of(whole)));
    EXPECT_EQ(digest.value(), digest_of(whole));
  }
}

TEST(HashStreams, DetectASingleFlippedBit) {
  std::string text(4096, 'x');
  const std::uint64_t checksum = checksum_of(bytes_of(text));
  const Digest digest = digest_of(text);
  text[2048] ^= 1;
  EXPECT_NE(checksum_of(bytes_of(text)), checksum);
  EXPECT_NE(digest_of(text), digest);
}

}  // namespace
}  // namespace moeflux
