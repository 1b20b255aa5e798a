#include "model/packed_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

constexpr AffineFormat kFourBits{.bits = 4, .group = 64, .scale_dtype = Dtype::bf16};
constexpr AffineFormat kEightBits{.bits = 8, .group = 64, .scale_dtype = Dtype::bf16};

ExpertFormat expert(std::uint64_t hidden, std::uint64_t dim, const Encoding& encoding = kFourBits) {
  return {{hidden, dim, encoding}, {hidden, dim, encoding}, {dim, hidden, encoding}};
}

TEST(RecordLayout, HasTheBytesOfThePublishedShapesWithoutAnyPadding) {
  struct Published {
    std::uint64_t hidden, dim, bytes;
  };
  for (const Published& shape : {Published{512, 2048, 1'769'472}, Published{1024, 4096, 7'077'888},
                                 Published{2048, 7168, 24'772'608}}) {
    const RecordLayout layout = record_layout(expert(shape.hidden, shape.dim));
    EXPECT_EQ(layout.payload_bytes(), shape.bytes);
    EXPECT_EQ(layout.record_bytes, shape.bytes);
    EXPECT_EQ(layout.gate_up_bytes, shape.bytes / 3 * 2);
    EXPECT_EQ(layout.down_offset, shape.bytes / 3 * 2);
    EXPECT_EQ(layout.down_bytes, shape.bytes / 3);
    EXPECT_EQ(layout.down_offset % kRecordAlignment, 0u);
  }
}

TEST(RecordLayout, AlternatesBlocksOfGateAndUp) {
  const RecordLayout layout = record_layout(expert(512, 2048));
  EXPECT_EQ(layout.gate_block_bytes, 32 * 576u);
  EXPECT_EQ(layout.up_block_bytes, 32 * 576u);
  EXPECT_EQ(layout.gate_up_bytes, 512 / 16 * (layout.gate_block_bytes + layout.up_block_bytes));
}

TEST(RecordLayout, AlignsDownAndTheRecordTo4096) {
  const RecordLayout layout = record_layout(expert(64, 128));
  EXPECT_EQ(layout.gate_up_bytes, 4 * 2 * 2 * 576u);
  EXPECT_EQ(layout.down_offset, 12'288u);  // after 9,216
  EXPECT_EQ(layout.down_bytes, 8 * 576u);
  EXPECT_EQ(layout.record_bytes, 20'480u);  // after 16,896
  EXPECT_EQ(layout.payload_bytes(), 13'824u);
}

TEST(RecordLayout, PadsTheLastBlockOfRows) {
  const RecordLayout layout = record_layout(expert(65, 96, PlainFormat{Dtype::bf16}));
  EXPECT_EQ(layout.gate_up_bytes, 5 * 2 * 48 * 64u);
  EXPECT_EQ(layout.down_bytes, 6 * 33 * 64u);
}

TEST(RecordLayout, AllowsADifferentEncodingPerMatrix) {
  ExpertFormat mixed = expert(512, 2048);
  mixed.up.encoding = kEightBits;
  mixed.down.encoding = PlainFormat{Dtype::bf16};
  const RecordLayout layout = record_layout(mixed);
  EXPECT_EQ(layout.gate_block_bytes, 32 * 576u);
  EXPECT_EQ(layout.up_block_bytes, 32 * 1088u);
  EXPECT_EQ(layout.gate_up_bytes, 32 * 32 * (576u + 1088));
  EXPECT_EQ(layout.down_bytes, 2048 * 512 * 2u);
}

TEST(RecordLayout, RequiresEqualRowsOfGateAndUp) {
  ExpertFormat uneven = expert(64, 128);
  uneven.up.rows = 65;
  EXPECT_CONTRACT(record_layout(uneven), "gate and up have as many rows");
}

TEST(PackedBytes, AreF32RowsOrTiles) {
  const MatrixFormat conv{8192, 4, PlainFormat{Dtype::f32}};
  EXPECT_EQ(packed_bytes(conv, TensorLayout::rows), 8192 * 4 * 4u);
  EXPECT_EQ(packed_bytes({1, 2048, kEightBits}, TensorLayout::tile16), 32 * 1088u);
  EXPECT_EQ(packed_bytes({17, 3, PlainFormat{Dtype::bf16}}, TensorLayout::tile16), 2 * 2 * 64u);
  EXPECT_CONTRACT(packed_bytes({1, 4, PlainFormat{Dtype::bf16}}, TensorLayout::rows), "rows are F32");
}

ModelConfig qwen() {
  const MoeConfig moe{.experts = 8,
                      .experts_per_token = 2,
                      .hidden_dim = 64,
                      .router = SoftmaxRouterConfig{},
                      .shared = SharedExpertConfig{.hidden_dim = 96, .gated = true}};
  const GatedDeltaNetConfig net{
      .key_heads = 2, .value_heads = 4, .key_head_dim = 16, .value_head_dim = 32, .conv_width = 4};
  const GatedAttentionConfig attention{.query_heads = 4, .kv_heads = 2, .head_dim = 48, .rope = {}};
  return {.family = Family::qwen3_5_moe,
          .dim = 128,
          .vocabulary = 512,
          .max_positions = 1024,
          .norm_eps = 1e-6,
          .tied_embeddings = false,
          .end_tokens = {},
          .layers = {{net, moe}, {attention, moe}}};
}

ModelConfig deepseek() {
  const MlaConfig mla{.heads = 4,
                      .query_latent_dim = 96,
                      .latent_dim = 64,
                      .nope_dim = 32,
                      .rope_dim = 16,
                      .value_dim = 24,
                      .rope = {}};
  const MoeConfig moe{.experts = 16,
                      .experts_per_token = 4,
                      .hidden_dim = 64,
                      .router = GroupedSigmoidRouterConfig{4, 2, true, 2.5},
                      .shared = SharedExpertConfig{.hidden_dim = 128, .gated = false}};
  ModelConfig model = qwen();
  model.family = Family::deepseek_v3;
  model.layers = {{mla, DenseMlpConfig{.hidden_dim = 256}}, {mla, moe}};
  return model;
}

// "name rows x cols", vectors without rows.
std::vector<std::string> lines_of(const ModelConfig& config, bool split_kv_b = false) {
  std::vector<std::string> lines;
  for (const TensorShape& tensor : resident_tensors(config, split_kv_b)) {
    const bool flat = tensor.is_vector && tensor.rows == 1;
    lines.push_back(tensor.name + " " + (flat ? "" : std::to_string(tensor.rows) + " x ") +
                    std::to_string(tensor.cols));
  }
  return lines;
}

TEST(ResidentTensors, OfQwenAreLayerByLayerWithTheEmbeddingsLast) {
  EXPECT_THAT(
      lines_of(qwen()),
      ElementsAre(
          "layers.0.input_layernorm 128", "layers.0.linear_attn.in_proj_qkv 192 x 128",
          "layers.0.linear_attn.in_proj_z 128 x 128", "layers.0.linear_attn.in_proj_a 4 x 128",
          "layers.0.linear_attn.in_proj_b 4 x 128", "layers.0.linear_attn.conv1d 192 x 4",
          "layers.0.linear_attn.A_log 4", "layers.0.linear_attn.dt_bias 4", "layers.0.linear_attn.norm 32",
          "layers.0.linear_attn.out_proj 128 x 128", "layers.0.post_attention_layernorm 128",
          "layers.0.mlp.gate 8 x 128", "layers.0.mlp.shared_expert.gate_proj 96 x 128",
          "layers.0.mlp.shared_expert.up_proj 96 x 128", "layers.0.mlp.shared_expert.down_proj 128 x 96",
          "layers.0.mlp.shared_expert_gate 1 x 128", "layers.1.input_layernorm 128",
          "layers.1.self_attn.q_proj 384 x 128", "layers.1.self_attn.k_proj 96 x 128",
          "layers.1.self_attn.v_proj 96 x 128", "layers.1.self_attn.q_norm 48",
          "layers.1.self_attn.k_norm 48", "layers.1.self_attn.o_proj 128 x 192",
          "layers.1.post_attention_layernorm 128", "layers.1.mlp.gate 8 x 128",
          "layers.1.mlp.shared_expert.gate_proj 96 x 128", "layers.1.mlp.shared_expert.up_proj 96 x 128",
          "layers.1.mlp.shared_expert.down_proj 128 x 96", "layers.1.mlp.shared_expert_gate 1 x 128",
          "norm 128", "lm_head 512 x 128", "embed_tokens 512 x 128"));
}

TEST(ResidentTensors, OfDeepseekHaveDenseAndMoeLayers) {
  EXPECT_THAT(
      lines_of(deepseek()),
      ElementsAre(
          "layers.0.input_layernorm 128", "layers.0.self_attn.q_a_proj 96 x 128",
          "layers.0.self_attn.q_a_layernorm 96", "layers.0.self_attn.q_b_proj 192 x 96",
          "layers.0.self_attn.kv_a_proj_with_mqa 80 x 128", "layers.0.self_attn.kv_a_layernorm 64",
          "layers.0.self_attn.kv_b_proj 224 x 64", "layers.0.self_attn.o_proj 128 x 96",
          "layers.0.post_attention_layernorm 128", "layers.0.mlp.gate_proj 256 x 128",
          "layers.0.mlp.up_proj 256 x 128", "layers.0.mlp.down_proj 128 x 256",
          "layers.1.input_layernorm 128", "layers.1.self_attn.q_a_proj 96 x 128",
          "layers.1.self_attn.q_a_layernorm 96", "layers.1.self_attn.q_b_proj 192 x 96",
          "layers.1.self_attn.kv_a_proj_with_mqa 80 x 128", "layers.1.self_attn.kv_a_layernorm 64",
          "layers.1.self_attn.kv_b_proj 224 x 64", "layers.1.self_attn.o_proj 128 x 96",
          "layers.1.post_attention_layernorm 128", "layers.1.mlp.gate 16 x 128",
          "layers.1.mlp.gate.e_score_correction_bias 16", "layers.1.mlp.shared_experts.gate_proj 128 x 128",
          "layers.1.mlp.shared_experts.up_proj 128 x 128", "layers.1.mlp.shared_experts.down_proj 128 x 128",
          "norm 128", "lm_head 512 x 128", "embed_tokens 512 x 128"));
}

TEST(ResidentTensors, OfASplitProjectionAreStackedByHead) {
  const auto lines = lines_of(deepseek(), true);
  EXPECT_THAT(lines, Contains("layers.1.self_attn.embed_q 256 x 32"));
  EXPECT_THAT(lines, Contains("layers.1.self_attn.unembed_out 96 x 64"));
  EXPECT_THAT(lines, Not(Contains(testing::HasSubstr("kv_b_proj"))));
}

TEST(ResidentTensors, FollowWhatTheConfigLeavesOut) {
  ModelConfig model = deepseek();
  model.tied_embeddings = true;
  std::get<MlaConfig>(model.layers[0].mixer).query_latent_dim.reset();
  std::get<MoeConfig>(model.layers[1].mlp).shared.reset();
  const auto lines = lines_of(model);
  EXPECT_THAT(lines, Contains("layers.0.self_attn.q_proj 192 x 128"));
  EXPECT_THAT(lines, Not(Contains(testing::HasSubstr("layers.0.self_attn.q_a"))));
  EXPECT_THAT(lines, Not(Contains(testing::HasSubstr("shared"))));
  EXPECT_THAT(lines, Not(Contains(testing::HasSubstr("lm_head"))));
  EXPECT_EQ(lines.back(), "embed_tokens 512 x 128");
}

TEST(ResidentTensors, HaveUniqueNames) {
  for (const ModelConfig& model : {qwen(), deepseek()}) {
    const auto tensors = resident_tensors(model, false);
    std::set<std::string> names;
    for (const TensorShape& tensor : tensors) names.insert(tensor.name);
    EXPECT_EQ(names.size(), tensors.size());
  }
}

}  // namespace
}  // namespace moeflux
