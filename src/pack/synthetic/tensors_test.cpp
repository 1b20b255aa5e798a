#include "pack/synthetic/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "pack/synthetic/shapes.h"
#include "source/model_config.h"
#include "source/testing/goldens.h"

namespace moeflux {
namespace {

using test::States;
using testing::Contains;
using testing::IsEmpty;

ModelConfig model_of(const std::string& shape) {
  PosixFileSystem disk;
  const auto text = shape_config(disk, shape);
  EXPECT_TRUE(text) << text.error().message();
  const auto document = parse_json(*text, "config.json");
  Notes notes;
  return *parse_model_config(ObjectReader(*document, "config.json"), notes);
}

const std::string kQwen = golden("qwen35moe-tiny-bf16").string();
const std::string kDeepseek = golden("deepseekv3-tiny-bf16").string();

struct Planned {
  SyntheticPlan plan;

  Planned(const ModelConfig& model, SyntheticFormat format)
      : plan(*plan_synthetic_tensors(model, format, 1)) {}

  std::string operator[](std::string_view name) const {
    for (const SyntheticTensor& tensor : plan.tensors)
      if (tensor.name == name)
        return std::string(name_of(tensor.dtype)) + " " + testing::PrintToString(tensor.shape);
    return "absent";
  }
};

TEST(SyntheticTensors, OfQwenInMlxAreStackedAndQuantized) {
  const Planned planned(model_of(kQwen), SyntheticFormat::mlx);
  const std::string layer = "language_model.model.layers.0.";
  EXPECT_EQ(planned[layer + "mlp.switch_mlp.gate_proj.weight"], "U32 { 8, 64, 16 }");
  EXPECT_EQ(planned[layer + "mlp.switch_mlp.gate_proj.scales"], "BF16 { 8, 64, 2 }");
  EXPECT_EQ(planned[layer + "mlp.switch_mlp.down_proj.biases"], "BF16 { 8, 128, 1 }");
  EXPECT_EQ(planned[layer + "mlp.gate.weight"], "U32 { 8, 32 }");
  EXPECT_EQ(planned[layer + "mlp.shared_expert_gate.weight"], "U32 { 1, 32 }");
  EXPECT_EQ(planned[layer + "linear_attn.conv1d.weight"], "BF16 { 256, 4, 1 }");
  EXPECT_EQ(planned[layer + "linear_attn.A_log"], "F32 { 4 }");
  EXPECT_EQ(planned["language_model.lm_head.weight"], "U32 { 512, 16 }");
  EXPECT_EQ(planned.plan.eight_bit_modules.size(), 16u);
  EXPECT_THAT(planned.plan.eight_bit_modules, Contains("language_model.model.layers.7.mlp.gate"));
}

TEST(SyntheticTensors, OfQwenInBf16AreFused) {
  const Planned planned(model_of(kQwen), SyntheticFormat::bf16);
  const std::string layer = "model.language_model.layers.0.";
  EXPECT_EQ(planned[layer + "mlp.experts.gate_up_proj"], "BF16 { 8, 128, 128 }");
  EXPECT_EQ(planned[layer + "mlp.experts.down_proj"], "BF16 { 8, 128, 64 }");
  EXPECT_EQ(planned[layer + "linear_attn.conv1d.weight"], "BF16 { 256, 1, 4 }");
  EXPECT_EQ(planned["lm_head.weight"], "BF16 { 512, 128 }");
  EXPECT_THAT(planned.plan.eight_bit_modules, IsEmpty());
}

TEST(SyntheticTensors, OfQwenInFp8AreSeparate) {
  const Planned planned(model_of(kQwen), SyntheticFormat::fp8);
  const std::string layer = "model.language_model.layers.0.";
  EXPECT_EQ(planned[layer + "mlp.experts.7.down_proj.weight"], "F8_E4M3 { 128, 64 }");
  EXPECT_EQ(planned[layer + "mlp.experts.7.down_proj.weight_scale_inv"], "F32 { 1, 1 }");
  EXPECT_EQ(planned[layer + "linear_attn.in_proj_qkv.weight_scale_inv"], "F32 { 2, 1 }");
  EXPECT_EQ(planned[layer + "linear_attn.in_proj_a.weight"], "BF16 { 4, 128 }");
  EXPECT_EQ(planned[layer + "mlp.gate.weight"], "BF16 { 8, 128 }");
}

TEST(SyntheticTensors, OfDeepseekAreSeparateUnlessMlxStacksThem) {
  const ModelConfig model = model_of(kDeepseek);
  const std::string moe = "model.layers.1.mlp.";
  const Planned mlx(model, SyntheticFormat::mlx);
  EXPECT_EQ(mlx[moe + "switch_mlp.up_proj.weight"], "U32 { 16, 64, 16 }");
  EXPECT_EQ(mlx[moe + "gate.weight"], "BF16 { 16, 128 }");
  EXPECT_EQ(mlx[moe + "gate.e_score_correction_bias"], "F32 { 16 }");
  EXPECT_EQ(mlx["model.layers.0.self_attn.kv_b_proj.weight"], "U32 { 256, 8 }");
  EXPECT_THAT(mlx.plan.eight_bit_modules, IsEmpty());
  EXPECT_EQ(Planned(model, SyntheticFormat::bf16)[moe + "experts.15.up_proj.weight"], "BF16 { 64, 128 }");
  const Planned fp8(model, SyntheticFormat::fp8);
  EXPECT_EQ(fp8[moe + "experts.15.up_proj.weight"], "F8_E4M3 { 64, 128 }");
  EXPECT_EQ(fp8[moe + "shared_experts.up_proj.weight"], "F8_E4M3 { 64, 128 }");
  EXPECT_EQ(fp8["model.layers.0.mlp.down_proj.weight_scale_inv"], "F32 { 1, 2 }");
  EXPECT_EQ(fp8["model.embed_tokens.weight"], "BF16 { 512, 128 }");
}

TEST(SyntheticTensors, LeaveAloneWhatIsNoMultipleOfTheGroup) {
  ModelConfig model = model_of(kQwen);
  model.dim = 96;
  const Planned planned(model, SyntheticFormat::mlx);
  EXPECT_EQ(planned["language_model.model.layers.0.mlp.gate.weight"], "BF16 { 8, 96 }");
  EXPECT_EQ(planned["language_model.model.layers.0.mlp.gate.scales"], "absent");
  EXPECT_EQ(planned["language_model.model.layers.0.mlp.switch_mlp.down_proj.weight"], "U32 { 8, 96, 8 }");
  EXPECT_THAT(planned.plan.eight_bit_modules, IsEmpty());
}

TEST(SyntheticTensors, HaveNoHeadWhenEmbeddingsAreTied) {
  ModelConfig model = model_of(kDeepseek);
  model.tied_embeddings = true;
  EXPECT_EQ(Planned(model, SyntheticFormat::bf16)["lm_head.weight"], "absent");
}

TEST(SyntheticTensors, OfAShapeBeyondAllBoundsAreRefused) {
  ModelConfig model = model_of(kDeepseek);
  for (LayerConfig& layer : model.layers)
    if (auto* moe = std::get_if<MoeConfig>(&layer.mlp)) moe->experts = 65536;
  const auto too_many = plan_synthetic_tensors(model, SyntheticFormat::fp8, 1);
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(too_many.error().message(), States("fp8", "200,000"));

  model.dim = kMaxDim;
  for (LayerConfig& layer : model.layers)
    if (auto* moe = std::get_if<MoeConfig>(&layer.mlp)) moe->hidden_dim = kMaxDim;
  EXPECT_FALSE(plan_synthetic_tensors(model, SyntheticFormat::mlx, 1));
}

TEST(SyntheticFormat, IsFoundByItsName) {
  for (const auto format : {SyntheticFormat::mlx, SyntheticFormat::bf16, SyntheticFormat::fp8})
    EXPECT_EQ(synthetic_format_from_name(name_of(format)), format);
  EXPECT_FALSE(synthetic_format_from_name("gguf"));
}

}  // namespace
}  // namespace moeflux
