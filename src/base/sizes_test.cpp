#include "base/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>

#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

std::uint64_t parsed(std::string_view text) {
  const auto size = parse_size(text);
  EXPECT_TRUE(size) << text << ": " << (size ? "" : size.error().message());
  return size ? *size : kMax;
}

std::string refusal(std::string_view text) {
  const auto size = parse_size(text);
  EXPECT_FALSE(size) << text;
  if (size) return "";
  EXPECT_EQ(size.error().code(), ErrorCode::invalid_argument);
  return size.error().message();
}

TEST(ParseSize, ParsesPlainBytes) {
  EXPECT_EQ(parsed("0"), 0);
  EXPECT_EQ(parsed("4096"), 4096);
  EXPECT_EQ(parsed("4096B"), 4096);
  EXPECT_EQ(parsed("18446744073709551615"), kMax);
}

TEST(ParseSize, TreatsUnitsAsPowersOf1024InAnySpelling) {
  EXPECT_EQ(parsed("64K"), 64 * kKiB);
  EXPECT_EQ(parsed("64k"), 64 * kKiB);
  EXPECT_EQ(parsed("64KB"), 64 * kKiB);
  EXPECT_EQ(parsed("64KiB"), 64 * kKiB);
  EXPECT_EQ(parsed("8M"), 8 * kMiB);
  EXPECT_EQ(parsed("3gib"), 3 * kGiB);
  EXPECT_EQ(parsed("2T"), 2 * kTiB);
}

TEST(ParseSize, RoundsExactFractionsDown) {
  EXPECT_EQ(parsed("1.5G"), kGiB + kGiB / 2);
  EXPECT_EQ(parsed("0.1K"), 102);
  EXPECT_EQ(parsed("0.999999999999999999999999999999K"), 1023);
  EXPECT_EQ(parsed("1.00000000000000000000000000000T"), kTiB);
}

TEST(ParseSize, StatesWhatIsWrongAndWhatIsExpected) {
  EXPECT_THAT(refusal(""), States("''", "empty"));
  EXPECT_THAT(refusal("-1"), States("'-1'", "negative"));
  EXPECT_THAT(refusal("12Q"), States("'12Q'", "'Q'", "K, M, G or T"));
  EXPECT_THAT(refusal("5."), States("'5.'", "digit", "point"));
  EXPECT_THAT(refusal("1.5"), States("'1.5'", "fraction of a byte"));
}

TEST(ParseSize, RejectsOtherText) {
  for (const char* const text : {" 1", "1 ", "+1", "K", ".5G", "1,5G", "1.5.5G", "64KK", "64iB", "64KiBs",
                                 "0x10", "1e9", "inf", "6 G", "1G1"}) {
    EXPECT_NE(refusal(text), "");
  }
}

TEST(ParseSize, RejectsSizesThatDoNotFit64Bits) {
  EXPECT_THAT(refusal("18446744073709551616"), States("'18446744073709551616'", "64 bits"));
  EXPECT_THAT(refusal("16777216T"), States("'16777216T'", "64 bits"));
  EXPECT_THAT(refusal(std::string(1000, '9')), States("64 bits"));
  EXPECT_EQ(parsed("16777215T"), kMax - kTiB + 1);
  EXPECT_EQ(parsed("16777215.9999999999999T"), kMax);
}

TEST(SizeArgument, HasTheLargestUnitThatIsExact) {
  EXPECT_EQ(size_argument(0), "0");
  EXPECT_EQ(size_argument(1023), "1023");
  EXPECT_EQ(size_argument(64 * kKiB), "64K");
  EXPECT_EQ(size_argument(1536 * kMiB), "1536M");
  EXPECT_EQ(size_argument(6 * kGiB), "6G");
  EXPECT_EQ(size_argument(2048 * kGiB), "2T");
}

RC_GTEST_PROP(SizeArgument, IsParsedAsTheSameSize, (std::uint64_t bytes)) {
  const auto shift = *rc::gen::inRange(0, 64);
  const std::uint64_t size = bytes << shift;
  const auto again = parse_size(size_argument(size));
  RC_ASSERT(again.has_value());
  RC_ASSERT(*again == size);
}

TEST(HumanBytes, ShowsThreeOrFourDigits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.00 KB");
  EXPECT_EQ(human_bytes(55'296), "55.3 KB");
  EXPECT_EQ(human_bytes(7'077'888), "7.08 MB");
  EXPECT_EQ(human_bytes(32'200'000), "32.2 MB");
  EXPECT_EQ(human_bytes(217'400'000'000), "217.4 GB");
  EXPECT_EQ(human_bytes(kMax), "18.45 EB");
}

TEST(HumanBytes, CarriesWhenRoundingUp) {
  EXPECT_EQ(human_bytes(9'994), "9.99 KB");
  EXPECT_EQ(human_bytes(9'995), "10.0 KB");
  EXPECT_EQ(human_bytes(999'949), "999.9 KB");
  EXPECT_EQ(human_bytes(999'950), "1.00 MB");
  EXPECT_EQ(human_bytes(999'950'000'000'000'000), "1.00 EB");
}

RC_GTEST_PROP(HumanBytes, IsWithinHalfAPercent, ()) {
  const std::uint64_t bytes = *rc::gen::inRange<std::uint64_t>(1000, 1'000'000) << *rc::gen::inRange(0, 44);
  const std::string text = human_bytes(bytes);
  const std::string units = " KMGTPE";
  double value = std::stod(text);
  for (std::size_t i = units.find(text[text.size() - 2]); i > 0; --i) value *= 1000;
  const auto exact = static_cast<double>(bytes);
  RC_ASSERT(value > exact * 0.995);
  RC_ASSERT(value < exact * 1.0051);
}

TEST(WithThousands, GroupsDigitsByThree) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(1000), "1,000");
  EXPECT_EQ(with_thousands(7'077'888), "7,077,888");
  EXPECT_EQ(with_thousands(kMax), "18,446,744,073,709,551,615");
}

}  // namespace
}  // namespace moeflux
