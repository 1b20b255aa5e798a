#include "pack/quantize.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

using Random = std::mt19937;

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

bool is_bf16_nan(std::uint32_t bits) { return (bits & 0x7f80) == 0x7f80 && (bits & 0x7f) != 0; }

TEST(Bf16FromFloat, KeepsEveryNumberThatIsBf16) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const std::uint16_t found = bf16_from_float(float_from_bf16(static_cast<std::uint16_t>(bits)));
    if (is_bf16_nan(bits))
      ASSERT_TRUE(is_bf16_nan(found)) << bits;
    else
      ASSERT_EQ(found, bits);
  }
}

// Above every finite BF16 of either sign, infinity after the largest: zero, denormals and all exponents.
TEST(Bf16FromFloat, RoundsToTheNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7f80) == 0x7f80) continue;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(bf16_from_float(from_bits(bits << 16 | 0x0001)), bits);
    ASSERT_EQ(bf16_from_float(from_bits(bits << 16 | 0x7fff)), bits);
    ASSERT_EQ(bf16_from_float(from_bits(bits << 16 | 0x8000)), even);
    ASSERT_EQ(bf16_from_float(from_bits(bits << 16 | 0x8001)), bits + 1);
    ASSERT_EQ(bf16_from_float(from_bits(bits << 16 | 0xffff)), bits + 1);
  }
}

TEST(Bf16FromFloat, KeepsANanWhoseUpperHalfWouldBeInfinity) {
  EXPECT_TRUE(is_bf16_nan(bf16_from_float(from_bits(0x7f800001))));
  EXPECT_TRUE(is_bf16_nan(bf16_from_float(from_bits(0xffffffff))));
}

struct Group {
  float scale, bias;
  std::vector<std::uint32_t> codes;
  std::vector<float> decoded;
};

constexpr AffineFormat affine(std::uint32_t bits, std::uint32_t group = 64) {
  return {bits, group, Dtype::bf16};
}

Group quantize(const std::vector<float>& numbers, std::uint32_t bits) {
  const auto size = static_cast<std::uint32_t>(numbers.size());
  QuantizedRows rows(1, size, affine(bits, size));
  rows.set_row(0, numbers);
  const MatrixView view = rows.view(1);
  Group group{load_float(view.scales.data(), 0, Dtype::bf16), load_float(view.biases.data(), 0, Dtype::bf16),
              std::vector<std::uint32_t>(size), std::vector<float>(size)};
  for (std::uint32_t col = 0; col < size; ++col) group.codes[col] = affine_code(view, 0, col);
  decode_row(view, 0, group.decoded);
  return group;
}

float random_bf16(Random& random, float spread) {
  std::normal_distribution<float> normal(0, spread);
  return float_from_bf16(bf16_from_float(normal(random)));
}

class Quantized : public testing::TestWithParam<std::uint32_t> {
 protected:
  std::uint32_t bits() const { return GetParam(); }
  double bins() const { return static_cast<double>((1u << bits()) - 1); }
};
INSTANTIATE_TEST_SUITE_P(, Quantized, testing::Values(4u, 8u),
                         [](const auto& param_info) { return "Bits" + std::to_string(param_info.param); });

TEST_P(Quantized, NumbersAreTheNearestOnesThatTheGroupHas) {
  EXPECT_TRUE(rc::check([bits = bits()] {
    const auto size = *rc::gen::element<std::size_t>(32, 64, 128);
    const auto spread = *rc::gen::element(1e-3f, 0.05f, 1.0f, 3e4f);
    const auto middle = *rc::gen::element(0.0f, -1.0f, 1.0f, 40.0f);
    Random random(*rc::gen::arbitrary<std::uint32_t>());
    std::vector<float> numbers(size);
    for (float& number : numbers) number = random_bf16(random, spread) + middle * spread;
    const Group group = quantize(numbers, bits);

    // A number is x = bias + t * scale. t is rounded three times (difference, quotient, integer), the first
    // two by 2^-24 each of at most 2 * 255: beside a tie the code may be the other one.
    const double scale = group.scale, bias = group.bias;
    const double slack = std::fabs(scale) * 512 * 0x1p-23;
    for (std::size_t i = 0; i < size; ++i) {
      double nearest = std::numeric_limits<double>::infinity();
      for (std::uint32_t code = 0; code < 1u << bits; ++code)
        nearest = std::min(nearest, std::fabs(code * scale + bias - static_cast<double>(numbers[i])));
      const double error = std::fabs(group.codes[i] * scale + bias - static_cast<double>(numbers[i]));
      RC_ASSERT(error <= nearest + slack);
    }
  }));
}

TEST_P(Quantized, NumbersAreOffByHalfAStepAndAtTheFarEndByLittleMore) {
  const double last = bins();
  EXPECT_TRUE(rc::check([bits = bits(), last] {
    Random random(*rc::gen::arbitrary<std::uint32_t>());
    std::vector<float> numbers(64);
    for (float& number : numbers) number = random_bf16(random, 0.05f);
    const Group group = quantize(numbers, bits);

    // Inside the range that codes cover: half a step. The step is the range over `last`, changed so that
    // the edge is a whole number of steps (at least last/2 of them) from 0: by a part of 1/last at most,
    // then rounded to BF16 (2^-9). So the far end is off by one step and last * 2^-9 steps.
    const double step = std::fabs(static_cast<double>(group.scale));
    const double end = group.bias + last * static_cast<double>(group.scale);
    const double low = std::min<double>(group.bias, end), high = std::max<double>(group.bias, end);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double number = numbers[i];
      const bool inside = low <= number && number <= high;
      const double error = std::fabs(static_cast<double>(group.decoded[i]) - number);
      RC_ASSERT(error <= step * (inside ? 0.5 + 1e-4 : 1 + last * 0x1p-9 + 1e-4));
    }
  }));
}

TEST_P(Quantized, ZerosAreZeros) {
  const Group group = quantize(std::vector<float>(64, 0.0f), bits());
  EXPECT_EQ(group.scale, float_from_bf16(bf16_from_float(-1e-7f)));
  EXPECT_EQ(group.bias, 0.0f);
  EXPECT_EQ(group.codes, std::vector<std::uint32_t>(64, 0));
  EXPECT_EQ(group.decoded, std::vector<float>(64, 0.0f));
}

TEST_P(Quantized, NegativeZerosCountAsZeros) {
  std::vector<float> numbers(64, 0.0f);
  numbers[0] = numbers[63] = -0.0f;
  EXPECT_EQ(quantize(numbers, bits()).decoded, std::vector<float>(64, 0.0f));
}

// For constants of any size: above 3.4e31, the number of 1e-7 steps from 0 exceeds what a float can hold.
TEST_P(Quantized, ConstantsAreExact) {
  for (const float number : {0.75f, -0.75f, 1e-3f, -3e4f, 1e31f, 1e33f, -1e33f, 3.38e38f}) {
    const float constant = float_from_bf16(bf16_from_float(number));
    const Group group = quantize(std::vector<float>(64, constant), bits());
    EXPECT_EQ(group.bias, constant);
    EXPECT_EQ(group.codes, std::vector<std::uint32_t>(64, 0)) << number;
    EXPECT_EQ(group.decoded, std::vector<float>(64, constant)) << number;
  }
}

TEST_P(Quantized, NumbersFarBelowTheSmallestStepVanish) {
  std::vector<float> numbers(64, 1e-30f);
  numbers[5] = -1e-30f;
  numbers[6] = 1e-40f;  // a denormal
  const Group group = quantize(numbers, bits());
  EXPECT_EQ(std::fabs(group.scale), float_from_bf16(bf16_from_float(1e-7f)));
  EXPECT_EQ(group.bias, 0.0f);
  EXPECT_EQ(group.decoded, std::vector<float>(64, 0.0f));
}

TEST_P(Quantized, OneLargeNumberIsExactAndTheOthersAreNear) {
  for (const float large : {3072.0f, -3072.0f}) {
    std::vector<float> numbers(64, 0.5f);
    numbers[17] = large;
    const Group group = quantize(numbers, bits());
    EXPECT_EQ(group.bias, large);
    EXPECT_EQ(group.codes[17], 0u);
    EXPECT_EQ(group.decoded[17], large);
    EXPECT_EQ(group.scale<0, large> 0) << "codes go from the large number towards zero";
    EXPECT_LE(std::fabs(group.decoded[0] - 0.5f), std::fabs(group.scale));
  }
}

TEST_P(Quantized, NumbersOfOneSignBeginAtTheOneFarthestFromZero) {
  std::vector<float> numbers(64);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = -1.0f - static_cast<float>(i) / 64;
  const Group negative = quantize(numbers, bits());
  EXPECT_EQ(negative.bias, numbers[63]);
  EXPECT_GT(negative.scale, 0.0f);
  for (float& number : numbers) number = -number;
  const Group positive = quantize(numbers, bits());
  EXPECT_EQ(positive.bias, numbers[63]);
  EXPECT_LT(positive.scale, 0.0f);
  EXPECT_EQ(positive.codes, negative.codes);
}

TEST_P(Quantized, HugeNumbersAreWithinAStepWhileTheirRangeIsFinite) {
  const std::vector<float> ends{float_from_bf16(0x7e80), float_from_bf16(0xfe80)};  // +-2^126
  std::vector<float> numbers(64, 0.0f);
  numbers[0] = ends[0];
  numbers[1] = ends[1];
  const Group group = quantize(numbers, bits());
  EXPECT_TRUE(std::isfinite(group.scale));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    EXPECT_LE(std::fabs(group.decoded[i] - numbers[i]), 1.5f * std::fabs(group.scale));
}

// As the rule defines it; find_not_finite() names the group.
TEST_P(Quantized, ARangeBeyondFloatsHasNoFiniteScale) {
  std::vector<float> numbers(64, 1.0f);
  numbers[0] = 3e38f;
  numbers[1] = -3e38f;
  const Group group = quantize(numbers, bits());
  EXPECT_EQ(group.scale, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(group.codes, std::vector<std::uint32_t>(64, 0));
}

TEST_P(Quantized, RowsAndGroupsDoNotTouchEachOther) {
  Random random(11);
  QuantizedRows rows(3, 192, affine(bits()));
  std::vector<std::vector<float>> numbers(3, std::vector<float>(192));
  for (auto& row : numbers)
    for (float& number : row) number = random_bf16(random, 0.05f);
  for (const std::uint64_t row : {2u, 0u, 1u}) rows.set_row(row, numbers[row]);
  rows.set_row(1, numbers[1]);  // replaces what was there

  const MatrixView view = rows.view(3);
  std::vector<float> decoded(192);
  for (std::uint64_t row = 0; row < 3; ++row) {
    decode_row(view, row, decoded);
    for (std::size_t g = 0; g < 3; ++g) {
      const auto begin = numbers[row].begin() + static_cast<std::ptrdiff_t>(g * 64);
      const Group alone = quantize({begin, begin + 64}, bits());
      for (std::size_t k = 0; k < 64; ++k) {
        EXPECT_EQ(affine_code(view, row, g * 64 + k), alone.codes[k]);
        EXPECT_EQ(decoded[g * 64 + k], alone.decoded[k]);
      }
    }
  }
}

TEST(QuantizedRows, ViewsAsManyRowsAsAreWanted) {
  const QuantizedRows rows(4, 128, affine(4));
  const MatrixView view = rows.view(3);
  EXPECT_EQ(view.rows, 3u);
  EXPECT_EQ(view.cols, 128u);
  EXPECT_EQ(view.codes.size(), 3 * 64u);
  EXPECT_EQ(view.scales.size(), 3 * 2 * 2u);
  EXPECT_EQ(view.biases.size(), 3 * 2 * 2u);
}

TEST(QuantizedRows, PromisesAreChecked) {
  EXPECT_CONTRACT(QuantizedRows(1, 64, affine(3)), "codes do not cross words");
  EXPECT_CONTRACT(QuantizedRows(1, 96, affine(4)), "a row is whole groups");
  EXPECT_CONTRACT(QuantizedRows(1, 64, AffineFormat{4, 64, Dtype::f16}), "scales are BF16");
  QuantizedRows rows(1, 64, affine(4));
  EXPECT_CONTRACT(rows.set_row(0, std::vector<float>(63)), "numbers has one element per column");
  EXPECT_CONTRACT(rows.view(2), "as many rows as there is room for");
}

}  // namespace
}  // namespace moeflux
