#include "source/matrix_resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/testing/tiny_models.h"

namespace moeflux {
namespace {

using test::States;
using testing::IsEmpty;

constexpr Dim kRows{96, "rows_key"}, kCols{128, "cols_key"};

// A test adds tensors of a module 'm' and others; the resolver is created on first use, after them.
struct AResolver : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  TinyCheckpoint tensors;
  Quantization quantization = Quantization::affine({4, 64});
  std::optional<TensorCatalog> catalog;
  std::optional<MatrixResolver> made;

  MatrixResolver& resolver() {
    if (!made) {
      catalog.emplace(catalog_of(disk, temporary, tensors.safetensors()));
      made.emplace(*catalog, quantization);
    }
    return *made;
  }
  const ByteRange& bytes_of(std::string_view tensor) { return catalog->find(tensor)->bytes; }

  template <class T>
  static std::string message(const Result<T>& result) {
    return result ? "no error" : result.error().message();
  }
  std::string file() const { return (temporary / "model.safetensors").string(); }

  // The result of parsing quantization_config {"quant_method": "fp8"}.
  static Quantization fp8() {
    const Json json = Json::parse(R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                                      "weight_block_size": [128, 128]}})");
    Notes notes;
    return *parse_quantization(ObjectReader(json, "config.json"), notes);
  }
};
using AResolvedMatrix = AResolver;

TEST_F(AResolvedMatrix, IsPlainIfThereIsOnlyAWeight) {
  tensors.module("m", {96, 128}, PlainFormat{Dtype::f16});
  const auto matrix = resolver().matrix("m", kRows, kCols);
  ASSERT_TRUE(matrix) << message(matrix);
  EXPECT_EQ(matrix->rows, 96u);
  EXPECT_EQ(matrix->cols, 128u);
  EXPECT_EQ(matrix->encoding, Encoding(PlainFormat{Dtype::f16}));
  EXPECT_EQ(matrix->codes, bytes_of("m.weight"));
  EXPECT_EQ(matrix->total_bytes(), 96u * 128 * 2);
}

TEST_F(AResolvedMatrix, TakesBitsAndGroupFromItsShapes) {
  for (const std::uint32_t bits : {2u, 3u, 4u, 5u, 6u, 8u})
    for (const std::uint32_t group : {32u, 64u, 128u}) {
      const AffineFormat format{bits, group, Dtype::f16};
      tensors = {};
      tensors.module("m", {96, 128}, format);
      quantization = Quantization::affine({bits, group});
      made.reset();
      const auto matrix = resolver().matrix("m", kRows, kCols);
      ASSERT_TRUE(matrix) << message(matrix);
      EXPECT_EQ(matrix->encoding, Encoding(format));
      EXPECT_EQ(matrix->codes, bytes_of("m.weight"));
      EXPECT_EQ(matrix->scales, bytes_of("m.scales"));
      EXPECT_EQ(matrix->biases, bytes_of("m.biases"));
    }
}

TEST_F(AResolvedMatrix, FollowsTheOverrideOfItsModule) {
  tensors.module("m", {96, 128}, kAffine8);
  quantization.override_module("m", AffineParameters{8, 64});
  const auto matrix = resolver().matrix("m", kRows, kCols);
  ASSERT_TRUE(matrix) << message(matrix);
  EXPECT_EQ(matrix->encoding, Encoding(kAffine8));
}

TEST_F(AResolvedMatrix, MustAgreeWithTheConfig) {
  tensors.module("m", {96, 128}, kAffine8);
  EXPECT_EQ(message(resolver().matrix("m", kRows, kCols)),
            "the config says 4 bits in groups of 64 for 'm', but the shapes of its tensors mean 8 bits in "
            "groups of 64");
  quantization.override_module("m", std::nullopt);
  EXPECT_EQ(message(resolver().matrix("m", kRows, kCols)),
            "the config says that 'm' is not quantized, but 'm.scales' is there");
  quantization = {};
  EXPECT_THAT(message(resolver().matrix("m", kRows, kCols)), States("'m.scales'", "'quantization'"));
}

TEST_F(AResolvedMatrix, MayBePlainInAQuantizedModelUnlessOverridden) {
  tensors.module("m", {96, 128}, PlainFormat{Dtype::bf16});
  EXPECT_TRUE(resolver().matrix("m", kRows, kCols));
  quantization.override_module("m", AffineParameters{8, 64});
  EXPECT_EQ(message(resolver().matrix("m", kRows, kCols)),
            "the config says that 'm' is quantized, but 'm.scales' is missing");
}

TEST_F(AResolvedMatrix, OfAnotherShapeNamesTheConfigKeys) {
  tensors.module("m", {95, 128}, PlainFormat{Dtype::bf16});
  tensors.module("q", {95, 128}, kAffine4);
  EXPECT_EQ(message(resolver().matrix("m", kRows, kCols)),
            file() + ": tensor 'm.weight': expected [rows_key=96, cols_key=128], found BF16 [95, 128]");
  EXPECT_EQ(message(resolver().matrix("q", kRows, kCols)),
            file() + ": tensor 'q.weight': expected [rows_key=96, cols_key=128], found U32 [95, 16]");
}

TEST_F(AResolvedMatrix, RejectsAnotherRank) {
  tensors.module("m", {1, 96, 128}, PlainFormat{Dtype::bf16});
  tensors.module("q", {1, 96, 128}, kAffine4);
  EXPECT_THAT(message(resolver().matrix("m", kRows, kCols)), States("BF16", "[1, 96, 128]"));
  EXPECT_THAT(message(resolver().matrix("q", kRows, kCols)), States("U32", "[1, 96, 16]"));
}

TEST_F(AResolvedMatrix, NamesAMissingTensor) {
  tensors.module("a", {96, 128}, kAffine4);
  tensors.module("b", {96, 128}, kAffine4);
  tensors.remove("a.scales");
  tensors.remove("b.biases");
  EXPECT_EQ(message(resolver().matrix("a", kRows, kCols)), "tensor 'a.scales' is missing");
  EXPECT_EQ(message(resolver().matrix("b", kRows, kCols)), "tensor 'b.biases' is missing");
  const auto absent = resolver().matrix("c", kRows, kCols);
  EXPECT_EQ(message(absent), "tensor 'c.weight' is missing");
  EXPECT_EQ(absent.error().code(), ErrorCode::not_found);
}

TEST_F(AResolvedMatrix, RejectsWordsThatGiveNoValidBits) {
  tensors.module("m", {96, 128}, kAffine4);
  tensors.module("n", {96, 128}, kAffine4);
  tensors.find("m.weight").shape = {96, 28};  // 7 bits
  tensors.find("n.weight").shape = {96, 17};
  EXPECT_THAT(message(resolver().matrix("m", kRows, kCols)), States(28, 128, "cols_key", 2, 3, 4, 5, 6, 8));
  EXPECT_THAT(message(resolver().matrix("n", kRows, kCols)), States(17));
}

TEST_F(AResolvedMatrix, RejectsScalesThatGiveNoValidGroup) {
  for (const char* name : {"a", "b", "c"}) tensors.module(name, {96, 128}, kAffine4);
  tensors.find("a.scales").shape = {96, 8};  // groups of 16
  tensors.find("b.scales").shape = {96, 0};
  tensors.find("c.scales").shape = {95, 2};
  EXPECT_THAT(message(resolver().matrix("a", kRows, kCols)), States(8, 128, "cols_key", 32, 64));
  EXPECT_THAT(message(resolver().matrix("b", kRows, kCols)), States(0));
  EXPECT_THAT(message(resolver().matrix("c", kRows, kCols)), States("'c.scales'"));
}

TEST_F(AResolvedMatrix, RequiresBiasesLikeItsScales) {
  for (const char* name : {"a", "b", "c"}) tensors.module(name, {96, 128}, kAffine4);
  tensors.find("a.biases").shape = {96, 4};
  tensors.find("b.biases").dtype = Dtype::f16;
  tensors.find("c.scales").dtype = tensors.find("c.biases").dtype = Dtype::u8;
  EXPECT_THAT(message(resolver().matrix("a", kRows, kCols)),
              States("'a.biases'", "BF16", "[96, 4]", "[96, 2]"));
  EXPECT_THAT(message(resolver().matrix("b", kRows, kCols)), States("'b.biases'", "F16", "[96, 2]"));
  EXPECT_THAT(message(resolver().matrix("c", kRows, kCols)),
              States("'c.scales'", "U8", "BF16", "F16", "F32"));
}

TEST_F(AResolvedMatrix, RequiresU32WeightsBesideScales) {
  tensors.module("m", {96, 128}, kAffine4);
  tensors.find("m.weight").dtype = Dtype::i32;
  EXPECT_THAT(message(resolver().matrix("m", kRows, kCols)), States("'m.weight'", "U32", "I32", "beside"));
}

TEST_F(AResolvedMatrix, RejectsIntegerWeights) {
  tensors.tensor("m.weight", {96, 128}, Dtype::i8);
  const auto matrix = resolver().matrix("m", kRows, kCols);
  EXPECT_THAT(message(matrix), States("'m.weight'", "I8", "BF16", "F16", "F32"));
  EXPECT_EQ(matrix.error().code(), ErrorCode::unsupported);
}

TEST_F(AResolvedMatrix, RejectsForeignQuantizationByName) {
  tensors.tensor("m.qweight", {16, 96}, Dtype::i32);
  tensors.tensor("n.weight_packed", {96, 16}, Dtype::i32);
  for (const char* module : {"m", "n"}) {
    const auto matrix = resolver().matrix(module, kRows, kCols);
    EXPECT_THAT(message(matrix), States("GPTQ", "AWQ"));
    EXPECT_EQ(matrix.error().code(), ErrorCode::unsupported);
  }
}

TEST_F(AResolvedMatrix, IsFp8WithOneScalePerBlock) {
  quantization = fp8();
  tensors.module("m", {130, 257}, Fp8BlockFormat{Dtype::f32});
  tensors.module("n", {130, 257}, Fp8BlockFormat{Dtype::bf16});
  for (const auto& [module, dtype] : {std::pair{"m", Dtype::f32}, std::pair{"n", Dtype::bf16}}) {
    const auto matrix = resolver().matrix(module, {130, "r"}, {257, "c"});
    ASSERT_TRUE(matrix) << message(matrix);
    EXPECT_EQ(matrix->encoding, Encoding(Fp8BlockFormat{dtype}));
    EXPECT_EQ(matrix->scales, bytes_of(std::string(module) + ".weight_scale_inv"));
  }
}

TEST_F(AResolvedMatrix, OfFp8RequiresScalesAndConfig) {
  quantization = fp8();
  for (const char* name : {"a", "b", "c"}) tensors.module(name, {130, 257}, Fp8BlockFormat{Dtype::f32});
  tensors.remove("a.weight_scale_inv");
  tensors.find("b.weight_scale_inv").shape = {2, 2};
  tensors.find("c.weight_scale_inv").dtype = Dtype::f16;
  EXPECT_EQ(message(resolver().matrix("a", {130, ""}, {257, ""})), "tensor 'a.weight_scale_inv' is missing");
  EXPECT_THAT(message(resolver().matrix("b", {130, ""}, {257, ""})),
              States("128=2", "128=3", "F32", "[2, 2]"));
  EXPECT_THAT(message(resolver().matrix("c", {130, ""}, {257, ""})), States("F16", "F32", "BF16"));
  quantization = {};
  EXPECT_THAT(message(resolver().matrix("b", {130, ""}, {257, ""})),
              States("'b.weight'", "F8_E4M3", "'quantization_config'"));
}

TEST_F(AResolver, SlicesAStackExactly) {
  tensors.module("s", {5, 96, 128}, kAffine4);
  const auto stack = resolver().stacked("s", {5, "experts"}, kRows, kCols);
  ASSERT_TRUE(stack) << message(stack);
  const EncodedBytes one = encoded_bytes(kAffine4, 96, 128);
  for (std::uint64_t i = 0; i < 5; ++i) {
    const SourceMatrix matrix = stack->at(i);
    EXPECT_EQ(matrix.rows, 96u);
    EXPECT_EQ(matrix.codes, (ByteRange{FileId(0), bytes_of("s.weight").offset + i * one.codes, one.codes}));
    EXPECT_EQ(matrix.scales,
              (ByteRange{FileId(0), bytes_of("s.scales").offset + i * one.scales, one.scales}));
    EXPECT_EQ(matrix.biases,
              (ByteRange{FileId(0), bytes_of("s.biases").offset + i * one.biases, one.biases}));
  }
  EXPECT_THAT(message(resolver().stacked("s", {6, "experts"}, kRows, kCols)),
              States("experts=6", "rows_key=96", "cols_key=128", "U32", "[5, 96, 16]"));
}

TEST_F(AResolver, TreatsATensorOfAnyRankAsAMatrix) {
  tensors.tensor("vector", {7}, Dtype::f32);
  tensors.tensor("cube", {3, 1, 4});
  const auto vector = resolver().plain("vector", {{7, "n"}});
  ASSERT_TRUE(vector) << message(vector);
  EXPECT_EQ(vector->rows, 1u);
  EXPECT_EQ(vector->cols, 7u);
  const auto cube = resolver().plain("cube", {{3, ""}, {1, ""}, {4, ""}});
  ASSERT_TRUE(cube) << message(cube);
  EXPECT_EQ(cube->rows, 3u);
  EXPECT_EQ(cube->cols, 4u);
  EXPECT_THAT(message(resolver().plain("cube", {{3, "c"}, {4, "k"}, {1, ""}})),
              States("c=3", "k=4", 1, "BF16", "[3, 1, 4]"));
}

TEST_F(AResolver, RecordsUsedAndSkippedTensors) {
  tensors.module("used", {96, 128}, kAffine4);
  tensors.tensor("skip.a", {3});
  tensors.tensor("skip.b", {5});
  tensors.tensor("left", {1});
  ASSERT_TRUE(resolver().matrix("used", kRows, kCols));
  const auto skipped = resolver().skip("skip.");
  EXPECT_EQ(skipped.tensors, 2u);
  EXPECT_EQ(skipped.bytes, 16u);
  EXPECT_EQ(resolver().skip("skip.").tensors, 0u) << "what is known is not skipped again";
  EXPECT_EQ(resolver().skip("used").tensors, 0u) << "what is used is not skipped";
  ASSERT_EQ(resolver().unused().size(), 1u);
  EXPECT_EQ(resolver().unused()[0]->name, "left");
}

}  // namespace
}  // namespace moeflux
