#include "source/expert_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/testing/tiny_models.h"

namespace moeflux {
namespace {

using test::States;

constexpr ExpertDims kDims{{3, "num_experts"}, {64, "moe_intermediate_size"}, {128, "hidden_size"}};

struct Experts : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  TinyCheckpoint tensors;
  Quantization quantization;
  std::optional<TensorCatalog> catalog;
  std::optional<MatrixResolver> resolver;

  Result<SourceExperts> locate() {
    catalog.emplace(catalog_of(disk, temporary, tensors.safetensors()));
    resolver.emplace(*catalog, quantization);
    return SafetensorsExperts(*resolver).locate(LayerId(7), "m", kDims);
  }
  std::string refusal() {
    const auto experts = locate();
    return experts ? "no error" : experts.error().message();
  }
  ByteRange part_of(std::string_view tensor, std::uint64_t offset, std::uint64_t size) const {
    const ByteRange& whole = catalog->find(tensor)->bytes;
    return {whole.file, whole.offset + offset, size};
  }
};
using RoutedExperts = Experts;

TEST_F(RoutedExperts, StackedByMlxAreSlicesOfNineTensors) {
  quantization = Quantization::affine({4, 64});
  tensors.module("m.switch_mlp.gate_proj", {3, 64, 128}, kAffine4);
  tensors.module("m.switch_mlp.up_proj", {3, 64, 128}, kAffine4);
  tensors.module("m.switch_mlp.down_proj", {3, 128, 64}, kAffine4);
  const auto experts = locate();
  ASSERT_TRUE(experts) << experts.error().message();
  EXPECT_EQ(experts->count(), 3u);
  EXPECT_TRUE(experts->is_uniform());
  for (std::uint32_t e = 0; e < 3; ++e) {
    const ExpertMatrices expert = experts->expert(ExpertId(e));
    EXPECT_EQ(expert.gate.codes, part_of("m.switch_mlp.gate_proj.weight", e * 4096, 4096));
    EXPECT_EQ(expert.up.scales, part_of("m.switch_mlp.up_proj.scales", e * 256, 256));
    EXPECT_EQ(expert.down.biases, part_of("m.switch_mlp.down_proj.biases", e * 256, 256));
    EXPECT_EQ(expert.down.rows, 128u);
    EXPECT_EQ(expert.down.cols, 64u);
    EXPECT_EQ(expert.total_bytes(), 3 * 4608u);
  }
}

TEST_F(RoutedExperts, StackedMayBePlain) {
  for (const char* part : {"gate_proj", "up_proj"})
    tensors.module(std::string("m.switch_mlp.") + part, {3, 64, 128}, PlainFormat{Dtype::bf16});
  tensors.module("m.switch_mlp.down_proj", {3, 128, 64}, PlainFormat{Dtype::bf16});
  const auto experts = locate();
  ASSERT_TRUE(experts) << experts.error().message();
  EXPECT_EQ(experts->expert(ExpertId(2)).up.codes, part_of("m.switch_mlp.up_proj.weight", 2 * 16384, 16384));
}

TEST_F(RoutedExperts, FusedByHuggingFaceHaveTheGateBeforeTheUpProjection) {
  tensors.tensor("m.experts.gate_up_proj", {3, 128, 128});
  tensors.tensor("m.experts.down_proj", {3, 128, 64});
  const auto experts = locate();
  ASSERT_TRUE(experts) << experts.error().message();
  const std::uint64_t half = 64 * 128 * 2;
  for (std::uint32_t e = 0; e < 3; ++e) {
    const ExpertMatrices expert = experts->expert(ExpertId(e));
    EXPECT_EQ(expert.gate.codes, part_of("m.experts.gate_up_proj", e * 2 * half, half));
    EXPECT_EQ(expert.up.codes, part_of("m.experts.gate_up_proj", e * 2 * half + half, half));
    EXPECT_EQ(expert.down.codes, part_of("m.experts.down_proj", e * half, half));
    EXPECT_EQ(expert.gate.rows, 64u);
    EXPECT_EQ(expert.up.rows, 64u);
    EXPECT_EQ(expert.up.cols, 128u);
  }
}

TEST_F(RoutedExperts, FusedInAnotherShapeNameTheConfigKeys) {
  tensors.tensor("m.experts.gate_up_proj", {3, 64, 128});
  tensors.tensor("m.experts.down_proj", {3, 128, 64});
  EXPECT_THAT(refusal(), States("num_experts=3", "2*moe_intermediate_size=128", "hidden_size=128", "BF16",
                                "[3, 64, 128]"));
}

TEST_F(RoutedExperts, HalfFusedNameTheMissingTensor) {
  tensors.tensor("m.experts.gate_up_proj", {3, 128, 128});
  EXPECT_THAT(refusal(), States("'m.experts.down_proj'", "missing"));
  tensors = {};
  tensors.tensor("m.experts.down_proj", {3, 128, 64});
  EXPECT_THAT(refusal(), States("'m.experts.gate_up_proj'", "missing"));
}

TEST_F(RoutedExperts, SeparateMayHaveDifferentEncodings) {
  quantization = Quantization::affine({4, 64});
  for (const char* e : {"0", "1", "2"}) {
    const Encoding encoding = *e == '1' ? Encoding(PlainFormat{Dtype::bf16}) : Encoding(kAffine4);
    const std::string base = std::string("m.experts.") + e + ".";
    tensors.module(base + "gate_proj", {64, 128}, encoding);
    tensors.module(base + "up_proj", {64, 128}, encoding);
    tensors.module(base + "down_proj", {128, 64}, encoding);
  }
  const auto experts = locate();
  ASSERT_TRUE(experts) << experts.error().message();
  EXPECT_EQ(experts->count(), 3u);
  EXPECT_FALSE(experts->is_uniform());
  EXPECT_EQ(experts->expert(ExpertId(0)).total_bytes(), 3 * 4608u);
  EXPECT_EQ(experts->expert(ExpertId(1)).total_bytes(), 3 * 16384u);
  EXPECT_EQ(experts->expert(ExpertId(2)).down.codes, catalog->find("m.experts.2.down_proj.weight")->bytes);
}

TEST_F(RoutedExperts, SeparateNameTheMissingOne) {
  for (const char* e : {"0", "1"})
    for (const char* part : {"gate_proj", "up_proj", "down_proj"})
      tensors.module(std::string("m.experts.") + e + "." + part,
                     *part == 'd' ? Shape{128, 64} : Shape{64, 128}, PlainFormat{Dtype::bf16});
  EXPECT_THAT(refusal(), States("'m.experts.2.gate_proj.weight'", "missing"));
}

TEST_F(RoutedExperts, MissingNameTheLayerAndTheExpectedTensors) {
  tensors.tensor("m.gate.weight", {3, 128});
  EXPECT_THAT(refusal(), States("layer 7", "'m.switch_mlp.*'", "'m.experts.*'"));
}

TEST_F(RoutedExperts, RequireAnExpertOfTheLayer) {
  tensors.tensor("m.experts.gate_up_proj", {3, 128, 128});
  tensors.tensor("m.experts.down_proj", {3, 128, 64});
  const auto experts = locate();
  ASSERT_TRUE(experts);
  EXPECT_CONTRACT((void)experts->expert(ExpertId(3)), "the expert is one of the layer");
}

}  // namespace
}  // namespace moeflux
