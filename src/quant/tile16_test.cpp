#include "quant/tile16.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/arithmetic.h"
#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

using tile16::block_bytes;
using tile16::kBlockRows;
using tile16::kUnitBytes;
using tile16::stored_encoding;
using Bytes = std::vector<std::byte>;
using Random = std::mt19937;

constexpr std::byte kUntouched{0xa5};

constexpr AffineFormat affine(std::uint32_t bits, std::uint32_t group = 64, Dtype scales = Dtype::bf16) {
  return {bits, group, scales};
}

Bytes random_bytes(std::uint64_t count, Random& random) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Random finite floats. NaNs are excluded because the compiler may choose which of two NaNs an operation
// returns.
Bytes random_finite(std::uint64_t count, Dtype dtype, Random& random) {
  const std::uint64_t size = bits_of(dtype) / 8;
  Bytes bytes = random_bytes(count * size, random);
  for (std::uint64_t last = size - 1; last < bytes.size(); last += size)
    bytes[last] &= std::byte{0xbf};  // the exponent's highest bit
  return bytes;
}

// A matrix in the encoding of a source, at any alignment.
class Source {
 public:
  Source(std::uint64_t rows, std::uint64_t cols, const Encoding& encoding)
      : rows_(rows), cols_(cols), encoding_(encoding) {
    const EncodedBytes bytes = encoded_bytes(encoding, rows, cols);
    codes.resize(bytes.codes);
    scales.resize(bytes.scales);
    biases.resize(bytes.biases);
  }

  static Source random(std::uint64_t rows, std::uint64_t cols, const Encoding& encoding, Random& random) {
    Source source(rows, cols, encoding);
    source.codes = random_bytes(source.codes.size(), random);
    const Dtype dtype = scale_dtype(encoding);
    const std::uint64_t size = bits_of(dtype) / 8;
    source.scales = random_finite(source.scales.size() / size, dtype, random);
    source.biases = random_finite(source.biases.size() / size, dtype, random);
    source.shift(random() % 8);
    return source;
  }

  MatrixView view() const { return {rows_, cols_, encoding_, part(codes), part(scales), part(biases)}; }

  Bytes codes, scales, biases;

 private:
  static Dtype scale_dtype(const Encoding& encoding) {
    if (const auto* format = std::get_if<AffineFormat>(&encoding)) return format->scale_dtype;
    if (const auto* fp8 = std::get_if<Fp8BlockFormat>(&encoding)) return fp8->scale_dtype;
    return Dtype::f32;  // unused: there are no scales
  }
  void shift(std::uint64_t bytes) {
    shift_ = bytes;
    for (Bytes* part : {&codes, &scales, &biases}) part->insert(part->begin(), bytes, kUntouched);
  }
  std::span<const std::byte> part(const Bytes& bytes) const { return std::span(bytes).subspan(shift_); }

  std::uint64_t rows_, cols_, shift_ = 0;
  Encoding encoding_;
};

// All blocks of a matrix, `stride` bytes apart.
Bytes encode(const MatrixView& view, std::uint64_t stride) {
  const std::uint64_t size = block_bytes(stored_encoding(view.encoding), view.cols);
  Bytes bytes(divide_up(view.rows, kBlockRows) * stride, kUntouched);
  for (std::uint64_t block = 0; block * kBlockRows < view.rows; ++block)
    tile16::encode_block(view, block * kBlockRows, std::span(bytes).subspan(block * stride, size));
  return bytes;
}

Bytes encode(const Source& source) {
  const MatrixView view = source.view();
  return encode(view, block_bytes(stored_encoding(view.encoding), view.cols));
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Checks the properties of the layout that hold for every encoding.
void check_matrix(const MatrixView& view, std::uint64_t stride) {
  const Encoding stored = stored_encoding(view.encoding);
  const std::uint64_t size = block_bytes(stored, view.cols);
  RC_ASSERT(size % kUnitBytes == 0u);
  RC_ASSERT(tile16::matrix_bytes(stored, view.rows, view.cols) == divide_up(view.rows, kBlockRows) * size);

  const Bytes bytes = encode(view, stride);
  const tile16::TiledMatrix tiled{view.rows, view.cols, stored, bytes.data(), stride};
  std::vector<float> expected(view.cols), decoded(view.cols);
  for (std::uint64_t row = 0; row < view.rows; ++row) {
    decode_row(view, row, expected);
    decode_row(tiled, row, decoded);
    RC_ASSERT(same_bits(decoded, expected));
  }
  for (std::uint64_t at = 0; at < bytes.size(); ++at) {
    const std::uint64_t row = at / stride * kBlockRows + at % stride % kUnitBytes / 4;
    if (at % stride >= size)
      RC_ASSERT(bytes[at] == kUntouched);  // between blocks
    else if (row >= view.rows)
      RC_ASSERT(bytes[at] == std::byte{0});  // padding rows
  }
}

void check_random_matrix(std::uint64_t rows, std::uint64_t cols, const Encoding& encoding) {
  Random random(*rc::gen::arbitrary<std::uint32_t>());
  const Source source = Source::random(rows, cols, encoding, random);
  const std::uint64_t size = block_bytes(stored_encoding(encoding), cols);
  check_matrix(source.view(), size + *rc::gen::element<std::uint64_t>(0, 64, 576, size));
}

using BitsAndGroup = std::tuple<std::uint32_t, std::uint32_t>;
class Tile16OfAffine : public testing::TestWithParam<BitsAndGroup> {};

TEST_P(Tile16OfAffine, KeepsEveryBit) {
  const auto [bits, group] = GetParam();
  for (const Dtype scales : {Dtype::bf16, Dtype::f16, Dtype::f32})
    EXPECT_TRUE(rc::check([format = affine(bits, group, scales)] {
      const auto rows = *rc::gen::inRange<std::uint64_t>(1, 36);
      const auto groups = *rc::gen::inRange<std::uint64_t>(1, 4);
      check_random_matrix(rows, groups * format.group, format);
    }));
}

INSTANTIATE_TEST_SUITE_P(, Tile16OfAffine,
                         testing::Combine(testing::Values(2, 3, 4, 5, 6, 8), testing::Values(32, 64, 128)),
                         [](const auto& param_info) {
                           return "Bits" + std::to_string(std::get<0>(param_info.param)) + "Group" +
                                  std::to_string(std::get<1>(param_info.param));
                         });

class Tile16OfPlain : public testing::TestWithParam<Dtype> {};

TEST_P(Tile16OfPlain, KeepsEveryBitForAnyNumberOfColumns) {
  EXPECT_TRUE(rc::check([dtype = GetParam()] {
    const auto rows = *rc::gen::inRange<std::uint64_t>(1, 50);
    const auto cols = *rc::gen::inRange<std::uint64_t>(1, 70);
    check_random_matrix(rows, cols, PlainFormat{dtype});
  }));
}

INSTANTIATE_TEST_SUITE_P(, Tile16OfPlain, testing::Values(Dtype::bf16, Dtype::f16, Dtype::f32),
                         [](const auto& param_info) { return std::string(name_of(param_info.param)); });

class Tile16OfFp8 : public testing::TestWithParam<Dtype> {};

TEST_P(Tile16OfFp8, KeepsEveryBitIncludingPartialBlocks) {
  EXPECT_TRUE(rc::check([dtype = GetParam()] {
    const auto rows = *rc::gen::element<std::uint64_t>(1, 15, 17, 128, 130, 145);
    const auto cols = *rc::gen::element<std::uint64_t>(1, 3, 64, 127, 128, 130, 257);
    check_random_matrix(rows, cols, Fp8BlockFormat{dtype});
  }));
}

// A reader of rows passes a slice of a large matrix, with the scales of the block that contains it.
TEST_P(Tile16OfFp8, EncodesRowsThatBeginInsideAScaleBlock) {
  Random random(3);
  const Source source = Source::random(256, 130, Fp8BlockFormat{GetParam()}, random);
  const MatrixView whole = source.view();
  const Bytes blocks = encode(source);
  const std::uint64_t size = blocks.size() / 16, scales_row = whole.scales.size() / 2;
  for (const std::uint64_t first : {0u, 16u, 112u, 128u, 240u}) {
    const MatrixView rows{16,
                          130,
                          whole.encoding,
                          whole.codes.subspan(first * 130, std::size_t{16} * 130),
                          whole.scales.subspan(first / 128 * scales_row, scales_row),
                          {}};
    const Bytes block = encode(rows, size);
    const auto expected = std::span(blocks).subspan(first / 16 * size, size);
    EXPECT_TRUE(std::equal(block.begin(), block.end(), expected.begin())) << "from row " << first;
  }
}

INSTANTIATE_TEST_SUITE_P(, Tile16OfFp8, testing::Values(Dtype::bf16, Dtype::f32),
                         [](const auto& param_info) { return std::string(name_of(param_info.param)); });

// Whether all bytes are zero except those at the given places.
struct Place {
  std::uint64_t offset;
  std::uint32_t byte;
};
testing::AssertionResult holds_only(const Bytes& bytes, std::vector<Place> places) {
  for (std::uint64_t at = 0; at < bytes.size(); ++at) {
    std::uint32_t expected = 0;
    for (const Place& place : places)
      if (place.offset == at) expected |= place.byte;
    const auto found = std::to_integer<std::uint32_t>(bytes[at]);
    if (found != expected)
      return testing::AssertionFailure() << "byte " << at << " is " << found << ", expected " << expected;
  }
  return testing::AssertionSuccess();
}

// Sets one code of an affine matrix of zeros: bits [col*bits, col*bits + bits) of its row.
void set_code(Source& source, std::uint64_t row, std::uint64_t col, std::uint32_t code) {
  const MatrixView view = source.view();
  const std::uint32_t bits = std::get<AffineFormat>(view.encoding).bits;
  for (std::uint32_t bit = 0; bit < bits; ++bit) {
    const std::uint64_t at = (row * view.cols + col) * bits + bit;
    if ((code >> bit & 1) != 0) source.codes[at / 8] |= static_cast<std::byte>(1u << at % 8);
  }
}

Bytes one_code(std::uint32_t bits, std::uint64_t row, std::uint64_t col, std::uint32_t code) {
  Source source(16, 64, affine(bits));
  set_code(source, row, col, code);
  return encode(source);
}

TEST(Tile16Places, HaveTwoQuadsOfFourBitColumnsInLowAndHighNibbles) {
  for (std::uint64_t row = 0; row < 16; ++row)
    for (std::uint64_t col = 0; col < 64; ++col) {
      const std::uint32_t nibble_shift = col % 8 < 4 ? 0 : 4;
      ASSERT_TRUE(
          holds_only(one_code(4, row, col, 13), {{col / 8 * 64 + row * 4 + col % 4, 13u << nibble_shift}}))
          << "row " << row << ", column " << col;
    }
}

TEST(Tile16Places, HaveEightFourBitColumnsPerLane) {
  Source source(16, 64, affine(4));
  const std::array<std::uint8_t, 4> as_mlx_packs{0x10, 0x32, 0x54, 0x76};  // column c of row 5 is c
  std::memcpy(source.codes.data() + std::size_t{5} * 32, as_mlx_packs.data(), 4);
  EXPECT_TRUE(holds_only(encode(source), {{20, 0x40}, {21, 0x51}, {22, 0x62}, {23, 0x73}}));
}

TEST(Tile16Places, HaveFourEightBitColumnsPerLane) {
  for (std::uint64_t row = 0; row < 16; ++row)
    for (std::uint64_t col = 0; col < 64; ++col)
      ASSERT_TRUE(holds_only(one_code(8, row, col, 0xc7), {{col / 4 * 64 + row * 4 + col % 4, 0xc7}}))
          << "row " << row << ", column " << col;
}

TEST(Tile16Places, HaveFourQuadsOfTwoBitColumnsPerLane) {
  for (std::uint64_t col = 0; col < 64; ++col)
    ASSERT_TRUE(
        holds_only(one_code(2, 9, col, 2), {{col / 16 * 64 + 36 + col % 4, 2u << 2 * (col % 16 / 4)}}))
        << "column " << col;
}

TEST(Tile16Places, HavePlanesWithTheLowBitsFirstForOtherWidths) {
  struct Width {
    std::uint32_t bits, low, high;  // of its planes
  };
  for (const Width width : {Width{3, 2, 1}, Width{5, 4, 1}, Width{6, 4, 2}})
    for (std::uint64_t col = 0; col < 64; ++col) {
      const auto place = [&](std::uint64_t plane, std::uint32_t bits, std::uint32_t value) -> Place {
        const std::uint64_t unit = 32 / bits;  // columns per unit
        return {plane + col / unit * 64 + 36 + col % 4, value << bits * (col % unit / 4)};
      };
      const std::uint32_t high_value = (1u << width.high) - 1;
      const std::uint64_t high_plane = std::uint64_t{16} * 64 * width.low / 8;
      ASSERT_TRUE(holds_only(one_code(width.bits, 9, col, high_value << width.low | 1),
                             {place(0, width.low, 1), place(high_plane, width.high, high_value)}))
          << width.bits << " bits, column " << col;
    }
}

TEST(Tile16Places, HaveBiasAndScaleOfEachRowAtTheEndOfAGroup) {
  Source source(16, 128, affine(4));
  const std::uint16_t scale = 0x3f81, bias = 0xbf02;  // of row 3, group 1
  std::memcpy(source.scales.data() + std::size_t{3 * 2 + 1} * 2, &scale, 2);
  std::memcpy(source.biases.data() + std::size_t{3 * 2 + 1} * 2, &bias, 2);
  const std::uint64_t at = 576 + 512 + 3 * 4;
  EXPECT_TRUE(holds_only(encode(source), {{at, 0x02}, {at + 1, 0xbf}, {at + 2, 0x81}, {at + 3, 0x3f}}));
}

TEST(Tile16Places, HaveAUnitOfScalesThenOneOfBiasesIfScalesAreF32) {
  Source source(16, 64, affine(4, 64, Dtype::f16));
  const std::uint16_t scale = 0x3c00, bias = 0xc000;  // 1 = 0x3f800000, -2 = 0xc0000000
  std::memcpy(source.scales.data() + std::size_t{7} * 2, &scale, 2);
  std::memcpy(source.biases.data() + std::size_t{7} * 2, &bias, 2);
  EXPECT_TRUE(holds_only(encode(source), {{512 + 30, 0x80}, {512 + 31, 0x3f}, {576 + 31, 0xc0}}));
}

TEST(Tile16Places, HaveTwoBf16ColumnsOrOneF32ColumnPerLane) {
  for (std::uint64_t row = 0; row < 16; ++row)
    for (std::uint64_t col = 0; col < 7; ++col) {
      Source half(16, 7, PlainFormat{Dtype::bf16});
      half.codes[(row * 7 + col) * 2 + 1] = std::byte{0x3f};
      const std::uint64_t half_at = col / 2 * 64 + row * 4 + col % 2 * 2 + 1;
      ASSERT_TRUE(holds_only(encode(half), {{half_at, 0x3f}})) << "row " << row << ", column " << col;
      Source whole(16, 7, PlainFormat{Dtype::f32});
      whole.codes[(row * 7 + col) * 4 + 3] = std::byte{0x3f};
      const std::uint64_t whole_at = col * 64 + row * 4 + 3;
      ASSERT_TRUE(holds_only(encode(whole), {{whole_at, 0x3f}})) << "row " << row << ", column " << col;
    }
}

TEST(Tile16Places, HaveTheInverseScaleOfEachRowAtTheEndOfAnFp8Group) {
  Source source(2, 130, Fp8BlockFormat{Dtype::bf16});
  source.codes[130 + 129] = std::byte{0x38};  // row 1, the second column of the second block
  const std::uint16_t scale = 0x3f80;
  std::memcpy(source.scales.data() + 2, &scale, 2);
  const std::uint64_t second = 32 * 64 + 64;
  EXPECT_TRUE(holds_only(encode(source), {{second + 4 + 1, 0x38},
                                          {second + 64 + 2, 0x80},
                                          {second + 64 + 3, 0x3f},
                                          {second + 64 + 6, 0x80},
                                          {second + 64 + 7, 0x3f}}));
}

TEST(Tile16Sizes, AreWholeUnitsOfCodesAndScales) {
  EXPECT_EQ(block_bytes(affine(4), 64), 576u);
  EXPECT_EQ(block_bytes(affine(4), 2048), 32 * 576u);
  EXPECT_EQ(block_bytes(affine(4, 64, Dtype::f32), 64), 512u + 128);
  EXPECT_EQ(block_bytes(affine(8), 64), 1024u + 64);
  EXPECT_EQ(block_bytes(affine(2), 64), 256u + 64);
  EXPECT_EQ(block_bytes(affine(3, 32), 32), 192u + 64);
  EXPECT_EQ(block_bytes(affine(5, 128), 128), 1280u + 64);
  EXPECT_EQ(block_bytes(affine(6), 128), 2 * (768u + 64));
  EXPECT_EQ(block_bytes(PlainFormat{Dtype::bf16}, 64), 32 * 64u);
  EXPECT_EQ(block_bytes(PlainFormat{Dtype::bf16}, 65), 33 * 64u);
  EXPECT_EQ(block_bytes(PlainFormat{Dtype::f32}, 65), 65 * 64u);
  EXPECT_EQ(block_bytes(Fp8BlockFormat{Dtype::f32}, 128), 33 * 64u);
  EXPECT_EQ(block_bytes(Fp8BlockFormat{Dtype::f32}, 130), (33 + 2) * 64u);
  EXPECT_EQ(block_bytes(Fp8BlockFormat{Dtype::f32}, 3), 2 * 64u);
}

TEST(Tile16Sizes, OfAMatrixIncludeThePaddingOfTheLastBlock) {
  EXPECT_EQ(tile16::matrix_bytes(affine(4), 512, 2048), 589'824u);
  EXPECT_EQ(tile16::matrix_bytes(affine(4), 1, 64), 576u);
  EXPECT_EQ(tile16::matrix_bytes(affine(4), 17, 64), 2 * 576u);
}

TEST(StoredEncoding, WidensF16AndKeepsTheOthers) {
  const auto stored = [](const Encoding& encoding) { return stored_encoding(encoding); };
  EXPECT_EQ(stored(PlainFormat{Dtype::bf16}), Encoding(PlainFormat{Dtype::bf16}));
  EXPECT_EQ(stored(PlainFormat{Dtype::f16}), Encoding(PlainFormat{Dtype::f32}));
  EXPECT_EQ(stored(PlainFormat{Dtype::f32}), Encoding(PlainFormat{Dtype::f32}));
  EXPECT_EQ(stored(affine(3, 32)), Encoding(affine(3, 32)));
  EXPECT_EQ(stored(affine(3, 32, Dtype::f16)), Encoding(affine(3, 32, Dtype::f32)));
  EXPECT_EQ(stored(affine(8, 128, Dtype::f32)), Encoding(affine(8, 128, Dtype::f32)));
  EXPECT_EQ(stored(Fp8BlockFormat{Dtype::bf16}), Encoding(Fp8BlockFormat{Dtype::f32}));
}

TEST(Tile16, ChecksItsPreconditions) {
  const Source source(17, 64, affine(4));
  Bytes block(576);
  EXPECT_CONTRACT(tile16::encode_block(source.view(), 17, block), "the block has at least one row");
  EXPECT_CONTRACT(tile16::encode_block(source.view(), 16, std::span(block).first(575)),
                  "the size of the block is right");
  EXPECT_CONTRACT(block_bytes(PlainFormat{Dtype::f16}, 64), "the encoding is a stored one");
  const tile16::TiledMatrix tiled{1, 64, affine(4), block.data(), 576};
  std::vector<float> out(64);
  EXPECT_CONTRACT(decode_row(tiled, 1, out), "the row is one of the matrix");
  EXPECT_CONTRACT(decode_row(tiled, 0, std::span(out).first(63)), "out has one element per column");
}

}  // namespace
}  // namespace moeflux
