#include "pack/synthetic/pattern.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

std::vector<std::byte> bytes_of(const SyntheticPattern& pattern, std::uint64_t key, std::uint64_t position,
                                std::size_t count) {
  std::vector<std::byte> bytes(count);
  generate(pattern, key, position, bytes);
  return bytes;
}

std::vector<double> floats_of(const SyntheticPattern& pattern, Dtype dtype, std::size_t count) {
  const auto bytes = bytes_of(pattern, 7, 0, count * bits_of(dtype) / 8);
  std::vector<double> floats;
  for (std::size_t i = 0; i < count; ++i) floats.push_back(load_float(bytes.data(), i, dtype));
  return floats;
}

double rms_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

const std::vector<SyntheticPattern>& every_pattern() {
  static const std::vector<SyntheticPattern> patterns{any_bits(),
                                                      e4m3_codes(),
                                                      spread(Dtype::bf16, Sign::random, 0.02),
                                                      spread(Dtype::f32, Sign::negative, 3),
                                                      scales(Dtype::bf16, 0.001),
                                                      affine_biases(0.001, 7.5f),
                                                      near_one()};
  return patterns;
}

RC_GTEST_PROP(SyntheticPattern, GivesTheSameBytesInAnyPieces, ()) {
  const SyntheticPattern pattern = *rc::gen::elementOf(every_pattern());
  const auto key = *rc::gen::arbitrary<std::uint64_t>();
  const auto start = *rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(0, 64),
                                     rc::gen::inRange<std::uint64_t>(1ull << 40, (1ull << 40) + 64));
  const auto sizes = *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 40));
  std::size_t total = 0;
  for (const std::size_t size : sizes) total += size;
  const auto whole = bytes_of(pattern, key, start, total);
  std::vector<std::byte> pieces;
  for (const std::size_t size : sizes) {
    const auto piece = bytes_of(pattern, key, start + pieces.size(), size);
    pieces.insert(pieces.end(), piece.begin(), piece.end());
  }
  RC_ASSERT(pieces == whole);
}

TEST(SyntheticPattern, OfAnotherKeyIsAnother) {
  EXPECT_NE(bytes_of(any_bits(), synthetic_key(1, "a"), 0, 8),
            bytes_of(any_bits(), synthetic_key(1, "b"), 0, 8));
  EXPECT_NE(bytes_of(any_bits(), synthetic_key(1, "a"), 0, 8),
            bytes_of(any_bits(), synthetic_key(2, "a"), 0, 8));
  EXPECT_EQ(synthetic_key(1, "a"), synthetic_key(1, "a"));
}

// The bytes of a seed never change: a model that is generated again must be the same model.
TEST(SyntheticPattern, StaysWhatItWas) {
  const std::uint64_t key = synthetic_key(1, "model.norm.weight");
  EXPECT_EQ(key, 315180491334517350u);
  EXPECT_EQ(load<std::uint64_t>(bytes_of(any_bits(), key, 0, 8).data()), 7066565205306412781u);
  EXPECT_EQ(load<std::uint64_t>(bytes_of(any_bits(), key, 8000, 8).data()), 527860471787624701u);
}

TEST(SyntheticPattern, UsesEveryCodeAboutEquallyOften) {
  std::vector<int> counts(16);
  for (const std::byte byte : bytes_of(any_bits(), 3, 0, 64'000)) {
    ++counts[std::to_integer<std::size_t>(byte & std::byte{15})];
    ++counts[std::to_integer<std::size_t>(byte >> 4)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 8000, 500);  // 6 standard deviations of 87
}

TEST(E4m3Codes, AreAllButTheTwoThatAreNoNumber) {
  std::set<std::uint8_t> codes;
  double sum = 0;
  const auto bytes = bytes_of(e4m3_codes(), 5, 0, 100'000);
  for (const std::byte byte : bytes) {
    const auto code = std::to_integer<std::uint8_t>(byte);
    codes.insert(code);
    sum += std::pow(float_from_e4m3(code), 2);
  }
  EXPECT_EQ(codes.size(), 254u);
  EXPECT_FALSE(codes.contains(0x7f));
  EXPECT_FALSE(codes.contains(0xff));
  EXPECT_NEAR(std::sqrt(sum / 100'000) / rms_of_e4m3_codes(), 1, 0.03);
}

RC_GTEST_PROP(Spread, HasTheRootMeanSquareThatWasAsked, ()) {
  const double rms = std::pow(10, *rc::gen::inRange(-80, 80) / 10.0);
  const Dtype dtype = *rc::gen::element(Dtype::bf16, Dtype::f32);
  const Sign sign = *rc::gen::element(Sign::positive, Sign::negative, Sign::random);
  const std::vector<double> values = floats_of(spread(dtype, sign, rms), dtype, 20'000);
  RC_ASSERT(std::abs(rms_of(values) / rms - 1) < 0.03);
  std::size_t negative = 0;
  for (const double value : values) {
    RC_ASSERT(std::isfinite(value));
    RC_ASSERT(std::abs(value) > rms / 4.5 && std::abs(value) < rms * 2);
    negative += value < 0 ? 1 : 0;
  }
  if (sign == Sign::positive) RC_ASSERT(negative == 0u);
  if (sign == Sign::negative) RC_ASSERT(negative == values.size());
  if (sign == Sign::random) RC_ASSERT(negative > 9500u && negative < 10'500u);
}

RC_GTEST_PROP(Scales, DifferALittle, ()) {
  const double rms = std::pow(10, *rc::gen::inRange(-60, 20) / 10.0);
  const Dtype dtype = *rc::gen::element(Dtype::bf16, Dtype::f32);
  const std::vector<double> values = floats_of(scales(dtype, rms), dtype, 4000);
  RC_ASSERT(std::abs(rms_of(values) / rms - 1) < 0.02);
  for (const double value : values) RC_ASSERT(value > rms * 0.8 && value < rms * 1.25);
  RC_ASSERT(std::set<double>(values.begin(), values.end()).size() >= 32u);
}

RC_GTEST_PROP(AffineBiases, PutTheMiddleCodeAtZero, ()) {
  const double rms = std::pow(10, *rc::gen::inRange(-60, 20) / 10.0);
  const float middle = *rc::gen::element(7.5f, 127.5f);
  const std::vector<double> of_scales = floats_of(scales(Dtype::bf16, rms), Dtype::bf16, 1000);
  const std::vector<double> of_biases = floats_of(affine_biases(rms, middle), Dtype::bf16, 1000);
  for (std::size_t i = 0; i < 1000; ++i)  // rounding to the 8 bits of BF16
    RC_ASSERT(std::abs(of_biases[i] / (-middle * of_scales[i]) - 1) <= 1.0 / 256);
}

TEST(NearOne, IsNearOne) {
  std::set<double> different;
  for (const double value : floats_of(near_one(), Dtype::bf16, 1000)) {
    EXPECT_GT(value, 0.96);
    EXPECT_LT(value, 1.06);
    different.insert(value);
  }
  EXPECT_EQ(different.size(), 16u);
}

TEST(SpreadDeathTest, RefusesWhatIsNoOrdinaryNumber) {
  EXPECT_CONTRACT(spread(Dtype::bf16, Sign::random, 0), "the root mean square is an ordinary number");
  EXPECT_CONTRACT(spread(Dtype::f16, Sign::random, 1), "synthetic floats are BF16 or F32");
}

}  // namespace
}  // namespace moeflux
