#include "quant/encoding.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace moeflux {
namespace {

constexpr AffineFormat kFourBit{.bits = 4, .group = 64, .scale_dtype = Dtype::bf16};
constexpr AffineFormat kTwoBit{.bits = 2, .group = 64, .scale_dtype = Dtype::bf16};

// Gate, up and down of one expert.
std::uint64_t expert_bytes(const Encoding& encoding, std::uint64_t hidden, std::uint64_t dim) {
  return 2 * encoded_bytes(encoding, hidden, dim).total() + encoded_bytes(encoding, dim, hidden).total();
}

TEST(EncodedBytes, OfOneExpertMatchPublishedModels) {
  EXPECT_EQ(expert_bytes(kFourBit, 512, 2048), 1'769'472u) << "35B";
  EXPECT_EQ(expert_bytes(kFourBit, 1024, 4096), 7'077'888u) << "397B";
  EXPECT_EQ(expert_bytes(kFourBit, 2048, 7168), 24'772'608u) << "DeepSeek-V3";
  EXPECT_EQ(expert_bytes(kTwoBit, 512, 2048), 983'040u) << "35B, 2-bit";
  EXPECT_EQ(expert_bytes(kTwoBit, 1024, 4096), 3'932'160u) << "397B, 2-bit";
}

TEST(EncodedBytes, OfAnAffineMatrixMatchItsTensors) {
  EXPECT_EQ(encoded_bytes(kFourBit, 1024, 4096), (EncodedBytes{2'097'152, 131'072, 131'072}));
  // U32 [10, 9], F32 [10, 3].
  const AffineFormat three{.bits = 3, .group = 32, .scale_dtype = Dtype::f32};
  EXPECT_EQ(encoded_bytes(three, 10, 96), (EncodedBytes{360, 120, 120}));
}

TEST(EncodedBytes, OfAPlainMatrixAreThoseOfItsWeights) {
  EXPECT_EQ(encoded_bytes(PlainFormat{Dtype::bf16}, 3, 5), (EncodedBytes{30, 0, 0}));
  EXPECT_EQ(encoded_bytes(PlainFormat{Dtype::f16}, 3, 5), (EncodedBytes{30, 0, 0}));
  EXPECT_EQ(encoded_bytes(PlainFormat{Dtype::f32}, 3, 5), (EncodedBytes{60, 0, 0}));
}

TEST(EncodedBytes, OfAnFp8MatrixIncludePartialBlocks) {
  EXPECT_EQ(encoded_bytes(Fp8BlockFormat{Dtype::f32}, 128, 128), (EncodedBytes{16384, 4, 0}));
  EXPECT_EQ(encoded_bytes(Fp8BlockFormat{Dtype::f32}, 130, 257), (EncodedBytes{33410, 24, 0}));
  EXPECT_EQ(encoded_bytes(Fp8BlockFormat{Dtype::bf16}, 130, 257), (EncodedBytes{33410, 12, 0}));
  EXPECT_EQ(encoded_bytes(Fp8BlockFormat{Dtype::f32}, 1, 1), (EncodedBytes{1, 4, 0}));
}

TEST(EncodingDescription, StatesFormatBitsAndGroup) {
  EXPECT_EQ(describe(PlainFormat{Dtype::bf16}), "bf16");
  EXPECT_EQ(describe(PlainFormat{Dtype::f16}), "f16");
  EXPECT_EQ(describe(PlainFormat{Dtype::f32}), "f32");
  EXPECT_EQ(describe(kFourBit), "affine 4-bit group 64");
  EXPECT_EQ(describe(AffineFormat{8, 32, Dtype::f16}), "affine 8-bit group 32 (F16 scales)");
  EXPECT_EQ(describe(Fp8BlockFormat{Dtype::f32}), "fp8 e4m3 128x128 (F32 scales)");
}

TEST(AffineFormats, AreThoseThatMlxWrites) {
  for (std::uint64_t bits = 0; bits <= 64; ++bits)
    EXPECT_EQ(is_affine_bits(bits), (bits >= 2 && bits <= 6) || bits == 8) << bits;
  for (std::uint64_t group = 0; group <= 256; ++group)
    EXPECT_EQ(is_affine_group(group), group == 32 || group == 64 || group == 128) << group;
  EXPECT_FALSE(is_affine_bits(std::uint64_t{4} << 32));
  EXPECT_FALSE(is_affine_group((std::uint64_t{1} << 32) + 64));
}

}  // namespace
}  // namespace moeflux
