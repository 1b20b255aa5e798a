#include "quant/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/testing/expect_contract.h"
#include "base/testing/states.h"

namespace moeflux {
namespace {

using Random = std::mt19937;
using test::States;

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Bytes at a given distance from an aligned address, as in a file.
class UnalignedBytes {
 public:
  UnalignedBytes(const std::vector<std::byte>& bytes, std::size_t shift)
      : shift_(shift), size_(bytes.size()), words_((bytes.size() + shift) / 8 + 1) {
    if (size_ > 0) std::memcpy(reinterpret_cast<std::byte*>(words_.data()) + shift_, bytes.data(), size_);
  }
  std::span<const std::byte> span() const { return std::as_bytes(std::span(words_)).subspan(shift_, size_); }

 private:
  std::size_t shift_, size_;
  std::vector<std::uint64_t> words_;
};

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Appends the bytes of a random finite float of this dtype, with a magnitude below 2^12, and returns its
// value.
float append_float(Dtype dtype, Random& random, std::vector<std::byte>& bytes) {
  const auto append = [&](const auto bits) {
    const auto raw = std::as_bytes(std::span(&bits, 1));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  };
  const auto sign = static_cast<std::uint32_t>(random() % 2);
  const auto fraction = static_cast<std::uint32_t>(random());
  double magnitude = 0;
  if (dtype == Dtype::f32) {
    const auto exponent = static_cast<std::uint32_t>(1 + random() % 138);
    append(static_cast<std::uint32_t>(sign << 31 | exponent << 23 | (fraction & 0x7fffff)));
    magnitude = std::ldexp(1.0 + (fraction & 0x7fffff) / 0x1p23, static_cast<int>(exponent) - 127);
  } else if (dtype == Dtype::bf16) {
    const auto exponent = static_cast<std::uint32_t>(1 + random() % 138);
    append(static_cast<std::uint16_t>(sign << 15 | exponent << 7 | (fraction & 0x7f)));
    magnitude = std::ldexp(1.0 + (fraction & 0x7f) / 0x1p7, static_cast<int>(exponent) - 127);
  } else {
    const auto exponent = static_cast<std::uint32_t>(1 + random() % 26);
    append(static_cast<std::uint16_t>(sign << 15 | exponent << 10 | (fraction & 0x3ff)));
    magnitude = std::ldexp(1.0 + (fraction & 0x3ff) / 0x1p10, static_cast<int>(exponent) - 15);
  }
  return static_cast<float>(sign != 0 ? -magnitude : magnitude);
}

std::vector<float> append_floats(std::size_t count, Dtype dtype, Random& random,
                                 std::vector<std::byte>& bytes) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(append_float(dtype, random, bytes));
  return values;
}

// Packs codes like MLX: each row is a stream of codes in 32-bit words, the first code in the lowest bits.
void pack_row(const std::vector<std::uint32_t>& codes, std::uint32_t bits,
              std::vector<std::uint32_t>& words) {
  const std::size_t first = words.size();
  words.resize(first + codes.size() * bits / 32);
  for (std::size_t col = 0; col < codes.size(); ++col) {
    const std::size_t bit = col * bits;
    const std::size_t word = first + bit / 32, shift = bit % 32;
    words[word] |= codes[col] << shift;
    if (shift + bits > 32) words[word + 1] |= codes[col] >> (32 - shift);
  }
}

// code * scale + bias, each operation rounded once. A double holds the product exactly, and rounding the sum
// of two floats to double and then to float gives the same as rounding it to float.
float affine(std::uint32_t code, float scale, float bias) {
  const auto product = static_cast<float>(static_cast<double>(code) * static_cast<double>(scale));
  return static_cast<float>(static_cast<double>(product) + static_cast<double>(bias));
}

using BitsAndGroup = std::tuple<std::uint32_t, std::uint32_t>;
class AffineMatrix : public testing::TestWithParam<BitsAndGroup> {};

TEST_P(AffineMatrix, DecodesToCodeTimesScalePlusBiasBitForBit) {
  const auto [bits, group] = GetParam();
  EXPECT_TRUE(rc::check([bits = bits, group = group] {
    const auto groups = *rc::gen::inRange<std::uint64_t>(1, 6);
    const auto rows = *rc::gen::inRange<std::uint64_t>(1, 5);
    const auto dtype = *rc::gen::element(Dtype::bf16, Dtype::f16, Dtype::f32);
    const auto shift = *rc::gen::inRange<std::size_t>(0, 8);
    Random random(*rc::gen::arbitrary<std::uint32_t>());
    const std::uint64_t cols = groups * group;

    std::vector<std::uint32_t> codes, words;
    for (std::uint64_t row = 0; row < rows; ++row) {
      std::vector<std::uint32_t> row_codes(cols);
      for (auto& code : row_codes) code = static_cast<std::uint32_t>(random()) & ((1u << bits) - 1);
      pack_row(row_codes, bits, words);
      codes.insert(codes.end(), row_codes.begin(), row_codes.end());
    }
    std::vector<std::byte> scale_bytes, bias_bytes;
    const auto scales = append_floats(rows * groups, dtype, random, scale_bytes);
    const auto biases = append_floats(rows * groups, dtype, random, bias_bytes);
    const UnalignedBytes packed(bytes_of(words), shift), s(scale_bytes, (shift + 3) % 8),
        b(bias_bytes, 7 - shift);
    const MatrixView view{rows, cols, AffineFormat{bits, group, dtype}, packed.span(), s.span(), b.span()};

    std::vector<float> decoded(cols);
    for (std::uint64_t row = 0; row < rows; ++row) {
      decode_row(view, row, decoded);
      RC_ASSERT(!find_not_finite(view, row, decoded));
      for (std::uint64_t col = 0; col < cols; ++col) {
        const std::uint64_t at = row * groups + col / group;
        const std::uint32_t code = codes[row * cols + col];
        RC_ASSERT(affine_code(view, row, col) == code);
        RC_ASSERT(same_bits(decoded[col], affine(code, scales[at], biases[at])));
      }
    }
  }));
}

INSTANTIATE_TEST_SUITE_P(, AffineMatrix,
                         testing::Combine(testing::Values(2u, 3u, 4u, 5u, 6u, 8u),
                                          testing::Values(32u, 64u, 128u)),
                         [](const auto& param_info) {
                           return "Bits" + std::to_string(std::get<0>(param_info.param)) + "Group" +
                                  std::to_string(std::get<1>(param_info.param));
                         });

TEST(AffineCodes, StartAtTheLowestBitsOfAWord) {
  const std::vector<std::uint32_t> words{0x76543210, 0xfedcba98, 0, 0};
  const auto bytes = bytes_of(words);
  const std::vector<std::byte> one(2), zero(2);
  const MatrixView view{1, 32, AffineFormat{4, 32, Dtype::bf16}, bytes, one, zero};
  for (std::uint32_t col = 0; col < 16; ++col) EXPECT_EQ(affine_code(view, 0, col), col);
}

class PlainMatrix : public testing::TestWithParam<Dtype> {};

TEST_P(PlainMatrix, DecodesToItsWeightsAtAnyAlignment) {
  const Dtype dtype = GetParam();
  Random random(7);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::vector<std::byte> bytes;
    const auto numbers = append_floats(3 * 17, dtype, random, bytes);
    const UnalignedBytes codes(bytes, shift);
    const MatrixView view{3, 17, PlainFormat{dtype}, codes.span(), {}, {}};
    std::vector<float> decoded(17);
    for (std::uint64_t row = 0; row < 3; ++row) {
      decode_row(view, row, decoded);
      for (std::size_t col = 0; col < 17; ++col)
        EXPECT_TRUE(same_bits(decoded[col], numbers[row * 17 + col]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, PlainMatrix, testing::Values(Dtype::bf16, Dtype::f16, Dtype::f32),
                         [](const auto& param_info) { return std::string(name_of(param_info.param)); });

class Fp8Matrix : public testing::TestWithParam<Dtype> {};

TEST_P(Fp8Matrix, UsesTheScaleOfEachBlockIncludingPartialOnes) {
  const Dtype dtype = GetParam();
  EXPECT_TRUE(rc::check([dtype] {
    // Sizes near block boundaries: 130 x 257 has 2 x 3 blocks, four of them partial.
    const auto rows = *rc::gen::element<std::uint64_t>(1, 127, 128, 130);
    const auto cols = *rc::gen::element<std::uint64_t>(1, 128, 129, 257);
    const auto shift = *rc::gen::inRange<std::size_t>(0, 8);
    Random random(*rc::gen::arbitrary<std::uint32_t>());
    std::vector<std::byte> codes(rows * cols), scale_bytes;
    for (auto& code : codes) code = static_cast<std::byte>((random() % 2) << 7 | random() % 127);  // no NaN
    const std::uint64_t across = (cols + 127) / 128, down = (rows + 127) / 128;
    const auto scales = append_floats(down * across, dtype, random, scale_bytes);
    const UnalignedBytes c(codes, shift), s(scale_bytes, 7 - shift);
    const MatrixView view{rows, cols, Fp8BlockFormat{dtype}, c.span(), s.span(), {}};

    std::vector<float> decoded(cols);
    for (std::uint64_t row = 0; row < rows; ++row) {
      decode_row(view, row, decoded);
      for (std::uint64_t col = 0; col < cols; ++col) {
        const float number = float_from_e4m3(std::to_integer<std::uint8_t>(codes[row * cols + col]));
        const float scale = scales[row / 128 * across + col / 128];
        RC_ASSERT(same_bits(decoded[col], static_cast<float>(double{number} * double{scale})));
      }
    }
  }));
}

INSTANTIATE_TEST_SUITE_P(, Fp8Matrix, testing::Values(Dtype::bf16, Dtype::f32),
                         [](const auto& param_info) { return std::string(name_of(param_info.param)); });

// What find_not_finite() reports for row `row`, or "nothing".
std::string complaint(const MatrixView& view, std::uint64_t row) {
  std::vector<float> decoded(view.cols);
  decode_row(view, row, decoded);
  return find_not_finite(view, row, decoded).value_or("nothing");
}

struct OneAffineMatrix : testing::Test {
  std::vector<std::byte> codes = std::vector<std::byte>(2 * 64);  // [2, 128] 4-bit zeros
  std::vector<std::uint16_t> scales = std::vector<std::uint16_t>(4, 0x3f80), biases = scales;
  MatrixView view() const {
    return {2,
            128,
            AffineFormat{4, 64, Dtype::bf16},
            codes,
            std::as_bytes(std::span(scales)),
            std::as_bytes(std::span(biases))};
  }
};
using NotFinite = OneAffineMatrix;

TEST_F(NotFinite, IsNothingInAFiniteMatrix) {
  EXPECT_EQ(complaint(view(), 0), "nothing");
  EXPECT_EQ(complaint(view(), 1), "nothing");
}

TEST_F(NotFinite, NamesTheGroupOfAScale) {
  scales[3] = 0x7fc0;
  EXPECT_EQ(complaint(view(), 0), "nothing");
  EXPECT_THAT(complaint(view(), 1), States("scale", "group 1", "nan"));
  scales[3] = 0xff80;
  EXPECT_THAT(complaint(view(), 1), States("scale", "group 1", "-inf"));
}

TEST_F(NotFinite, NamesTheGroupOfABias) {
  biases[0] = 0x7f80;
  EXPECT_THAT(complaint(view(), 0), States("bias", "group 0", "inf"));
}

TEST_F(NotFinite, NamesTheColumnOfAWeightThatOverflows) {
  std::fill(codes.begin(), codes.end(), std::byte{0x11});
  codes[3] = std::byte{0xf1};  // column 7 is 15
  scales[0] = 0x7f00;          // 2^127: 1 * it is finite, 15 * it is not
  EXPECT_THAT(complaint(view(), 0), States("weight", "column 7", "inf"));
}

TEST(NotFiniteOfAPlainMatrix, NamesTheColumn) {
  const std::vector<float> numbers{0, 1, 2, NAN};
  const MatrixView view{2, 2, PlainFormat{Dtype::f32}, std::as_bytes(std::span(numbers)), {}, {}};
  EXPECT_EQ(complaint(view, 0), "nothing");
  EXPECT_THAT(complaint(view, 1), States("weight", "column 1", "nan"));
}

TEST(NotFiniteOfAnFp8Matrix, NamesTheBlockOfAScaleAndTheColumnOfACode) {
  std::vector<std::byte> codes(130 * 130);
  std::vector<float> scales(4, 1.0f);
  const MatrixView view{130, 130, Fp8BlockFormat{Dtype::f32}, codes, std::as_bytes(std::span(scales)), {}};
  EXPECT_EQ(complaint(view, 129), "nothing");
  scales[3] = NAN;
  EXPECT_EQ(complaint(view, 127), "nothing");
  EXPECT_THAT(complaint(view, 128), States("inverse scale", "block (1, 1)", "nan"));
  scales[3] = 1;
  codes[129 * 130 + 5] = std::byte{0xff};
  EXPECT_EQ(complaint(view, 128), "nothing");
  EXPECT_THAT(complaint(view, 129), States("weight", "column 5"));
}

TEST(NotFiniteOfAnFp8Slice, NamesTheBlockOfTheWholeMatrix) {
  const std::vector<std::byte> codes(2 * 130);
  const std::vector<float> scales{1, NAN};
  const MatrixView rows{2, 130, Fp8BlockFormat{Dtype::f32}, codes, std::as_bytes(std::span(scales)), {}};
  std::vector<float> decoded(130);
  decode_row(rows, 1, decoded);
  EXPECT_THAT(find_not_finite(rows, 1, decoded, 256).value_or("nothing"),
              States("inverse scale", "block (2, 1)", "nan"));
}

TEST(DecodeRow, RequiresARowOfTheMatrixAndSpansOfItsSizes) {
  const std::vector<float> numbers{1, 2, 3, 4};
  const auto bytes = std::as_bytes(std::span(numbers));
  std::vector<float> out(2);
  const MatrixView view{2, 2, PlainFormat{Dtype::f32}, bytes, {}, {}};
  EXPECT_CONTRACT(decode_row(view, 2, out), "the row is one of the matrix");
  EXPECT_CONTRACT(decode_row(view, 0, std::span(out).first(1)), "out has one element per column");
  const MatrixView short_view{2, 2, PlainFormat{Dtype::f32}, bytes.first(15), {}, {}};
  EXPECT_CONTRACT(decode_row(short_view, 0, out), "the view's spans have the sizes of its encoding");
}

}  // namespace
}  // namespace moeflux
