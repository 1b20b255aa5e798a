// The matrices of whole models: which tensors are used, skipped and missing.

#include "source/tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/source_model.h"
#include "source/testing/tiny_models.h"

namespace moeflux {
namespace {

using test::States;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

struct TinyModel : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;

  Result<SourceModel> open(const TinyCheckpoint& tiny) {
    return SourceModel::open(disk, tiny.write(temporary));
  }

  std::string refusal(const TinyCheckpoint& tiny) {
    const auto model = open(tiny);
    return model ? "no error" : model.error().message();
  }
  // The skipped bytes of a model that opens, as `inspect` counts them.
  static std::uint64_t skipped_bytes(const SourceModel& model) { return model.summarise()->skipped_bytes; }

  static std::vector<std::string> names_of(const SourceModel& model) {
    std::vector<std::string> names;
    for (const NamedMatrix& named : model.resident()) names.push_back(named.name);
    return names;
  }
};
using QwenModel = TinyModel;
using DeepseekModel = TinyModel;
using AnyModel = TinyModel;

std::vector<TinyCheckpoint> every_tiny_model() {
  return {tiny_qwen_mlx(), tiny_qwen_hugging_face(), tiny_deepseek_mlx(), tiny_deepseek_fp8()};
}

TEST_F(AnyModel, OpensWithoutNotesAndUsesEveryByte) {
  for (const TinyCheckpoint& tiny : every_tiny_model()) {
    const auto model = open(tiny);
    ASSERT_TRUE(model) << model.error().message();
    EXPECT_THAT(model->notes(), IsEmpty());
    const auto summary = model->summarise();
    ASSERT_TRUE(summary);
    EXPECT_EQ(summary->resident_bytes + summary->expert_bytes, tiny.safetensors().data().size());
  }
}

TEST_F(AnyModel, NamesEachRemovedTensor) {
  for (const TinyCheckpoint& whole : every_tiny_model())
    for (const TestTensor& tensor : whole.tensors) {
      TinyCheckpoint less = whole;
      less.remove(tensor.name);
      EXPECT_THAT(refusal(less), States(tensor.name));
    }
}

TEST_F(AnyModel, NamesEachTensorWithALargerFirstDimension) {
  for (const TinyCheckpoint& whole : every_tiny_model())
    for (std::size_t i = 0; i < whole.tensors.size(); ++i) {
      TinyCheckpoint other = whole;
      other.tensors[i].shape[0] += 1;
      EXPECT_THAT(refusal(other), States(whole.tensors[i].name));
    }
}

TEST_F(AnyModel, NotesUnknownTensors) {
  TinyCheckpoint tiny = tiny_deepseek_mlx();
  tiny.tensor("model.zzz", {3});
  tiny.tensor("model.strange", {3});
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(model->notes(), ElementsAre(States("2 tensors", "'model.strange'")));
}

TEST_F(AnyModel, WithTiedEmbeddingsHasNoHeadAndSkipsOneWithANote) {
  for (TinyCheckpoint tiny : {tiny_qwen_mlx(), tiny_deepseek_mlx()}) {
    tiny.config["tie_word_embeddings"] = true;
    const auto with_head = open(tiny);
    ASSERT_TRUE(with_head) << with_head.error().message();
    EXPECT_THAT(names_of(*with_head), Not(Contains("lm_head")));
    EXPECT_THAT(with_head->notes(), ElementsAre(States("'tie_word_embeddings'", "true")));
    EXPECT_EQ(skipped_bytes(*with_head), encoded_bytes(kAffine4, 96, 64).total());

    tiny.remove_all("lm_head");
    const auto without_head = open(tiny);
    ASSERT_TRUE(without_head) << without_head.error().message();
    EXPECT_THAT(without_head->notes(), IsEmpty());
  }
}

TEST_F(QwenModel, HasTheSameMatricesInEveryFormat) {
  const auto mlx = open(tiny_qwen_mlx());
  const auto hugging_face = open(tiny_qwen_hugging_face());
  ASSERT_TRUE(mlx && hugging_face);
  EXPECT_EQ(names_of(*mlx), names_of(*hugging_face));
  EXPECT_THAT(names_of(*mlx), Contains("layers.1.self_attn.q_proj"));
  EXPECT_EQ(mlx->config(), hugging_face->config());
}

TEST_F(QwenModel, SkipsPredictionAndVisionWithNotes) {
  TinyCheckpoint tiny = tiny_qwen_hugging_face();
  tiny.tensor("mtp.layers.0.x.weight", {10});
  tiny.tensor("mtp.norm.weight", {10});
  tiny.tensor("model.visual.blocks.0.weight", {50});
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(model->notes(),
              ElementsAre("skipped 2 tensors 'mtp.*' (40 B): multi-token prediction is not used",
                          "skipped 1 tensors 'model.visual.*' (100 B): only the text model is read"));
  EXPECT_EQ(skipped_bytes(*model), 140u);
}

TEST_F(QwenModel, SkipsTheVisionTowerOfMlx) {
  TinyCheckpoint tiny = tiny_qwen_mlx();
  tiny.tensor("vision_tower.patch_embed.weight", {50});
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(model->notes(), ElementsAre(States("'vision_tower.*'")));
}

TEST_F(QwenModel, MayHaveBareNames) {
  TinyCheckpoint tiny = tiny_qwen_mlx();
  const std::string prefix = "language_model.";
  for (TestTensor& tensor : tiny.tensors) tensor.name = tensor.name.substr(prefix.size());
  Json bare = {{"group_size", 64u}, {"bits", 4u}};
  for (const auto& [key, value] : tiny.config["quantization"].items())
    if (key.starts_with(prefix)) bare[key.substr(prefix.size())] = value;
  tiny.config["quantization"] = bare;
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(names_of(*model), names_of(*open(tiny_qwen_mlx())));
}

TEST_F(QwenModel, OfAnotherNamingNamesTheExpectedPrefixes) {
  TinyCheckpoint tiny = tiny_qwen_mlx();
  for (TestTensor& tensor : tiny.tensors) tensor.name = "transformer." + tensor.name;
  EXPECT_THAT(refusal(tiny), States("'language_model.model.layers.'"));
}

TEST_F(QwenModel, AddsOneToFiveKindsOfNormsOfHuggingFaceOnly) {
  const auto raised = [](const SourceModel& model) {
    std::vector<std::string> names;
    for (const NamedMatrix& named : model.resident())
      if (named.matrix.add_one) names.push_back(named.name);
    return names;
  };
  const auto hugging_face = open(tiny_qwen_hugging_face());
  ASSERT_TRUE(hugging_face) << hugging_face.error().message();
  EXPECT_THAT(raised(*hugging_face),
              UnorderedElementsAre("layers.0.input_layernorm", "layers.0.post_attention_layernorm",
                                   "layers.1.input_layernorm", "layers.1.post_attention_layernorm",
                                   "layers.1.self_attn.q_norm", "layers.1.self_attn.k_norm", "norm"));
  const auto mlx = open(tiny_qwen_mlx());
  ASSERT_TRUE(mlx);
  EXPECT_THAT(raised(*mlx), IsEmpty());
}

TEST_F(QwenModel, TakesItsWriterFromTheShapeOfTheConvolution) {
  TinyCheckpoint tiny = tiny_qwen_hugging_face();  // unquantized, but converted by MLX
  tiny.find("model.language_model.layers.0.linear_attn.conv1d.weight").shape = {128, 4, 1};
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_TRUE(std::none_of(model->resident().begin(), model->resident().end(),
                           [](const NamedMatrix& named) { return named.matrix.add_one; }));
}

TEST_F(QwenModel, RejectsAHalfConvertedModel) {
  TinyCheckpoint tiny = tiny_qwen_hugging_face();
  tiny.config["layer_types"] = {"linear_attention", "linear_attention"};
  tiny.remove_all("layers.1.self_attn");
  for (const TestTensor& tensor : std::vector<TestTensor>(tiny.tensors))
    if (const std::size_t at = tensor.name.find("layers.0.linear_attn"); at != std::string::npos)
      tiny.tensors.push_back(
          {std::string(tensor.name).replace(at, 9, "layers.1."), tensor.dtype, tensor.shape});
  ASSERT_EQ(refusal(tiny), "no error");
  tiny.find("model.language_model.layers.1.linear_attn.conv1d.weight").shape = {128, 4, 1};
  EXPECT_THAT(refusal(tiny), States("MLX"));
}

TEST_F(QwenModel, WithoutASharedExpertNeedsNoneOfItsTensors) {
  TinyCheckpoint tiny = tiny_qwen_mlx();
  tiny.config["shared_expert_intermediate_size"] = 0u;
  tiny.remove_all("shared_expert");
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(model->notes(), IsEmpty());
}

TEST_F(DeepseekModel, SkipsLayersPastTheLastWithANote) {
  TinyCheckpoint tiny = tiny_deepseek_fp8();
  tiny.tensor("model.layers.2.eh_proj.weight", {10});
  tiny.tensor("model.layers.2.shared_head.norm.weight", {10});
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(model->notes(), ElementsAre(States("2 tensors", "'model.layers.2.*'", "40 B")));
  EXPECT_EQ(skipped_bytes(*model), 40u);
}

TEST_F(DeepseekModel, IgnoresStoredRotaryFrequencies) {
  TinyCheckpoint tiny = tiny_deepseek_mlx();
  tiny.tensor("model.layers.0.self_attn.rotary_emb.inv_freq", {8}, Dtype::f32);
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(model->notes(), IsEmpty());
}

TEST_F(DeepseekModel, AcceptsTheSplitProjectionsOfNewerMlx) {
  TinyCheckpoint tiny = tiny_deepseek_mlx();
  tiny.remove_all("kv_b_proj");
  for (const char* layer : {"0", "1"}) {
    const std::string base = std::string("model.layers.") + layer + ".self_attn.";
    tiny.module(base + "embed_q", {2, 64, 64}, kAffine4);
    tiny.module(base + "unembed_out", {2, 32, 64}, kAffine4);
  }
  const auto model = open(tiny);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(model->notes(), IsEmpty());
  const auto& resident = model->resident();
  const auto embed = std::find_if(resident.begin(), resident.end(), [](const NamedMatrix& named) {
    return named.name == "layers.1.self_attn.embed_q";
  });
  ASSERT_NE(embed, resident.end());
  EXPECT_EQ(embed->matrix.rows, 128u) << "two heads of 64 latent channels";
  EXPECT_EQ(embed->matrix.cols, 64u);
  const std::string name = "model.layers.1.self_attn.embed_q";
  EXPECT_EQ(embed->matrix.codes, model->catalog().find(name + ".weight")->bytes);
  EXPECT_EQ(embed->matrix.scales, model->catalog().find(name + ".scales")->bytes);
  EXPECT_EQ(embed->matrix.biases, model->catalog().find(name + ".biases")->bytes);

  tiny.remove("model.layers.1.self_attn.unembed_out.weight");
  EXPECT_THAT(refusal(tiny), States("'model.layers.1.self_attn.unembed_out.weight'", "missing"));
}

TEST_F(DeepseekModel, RejectsSplitProjectionsWhoseFp8BlocksCrossHeads) {
  TinyCheckpoint tiny = tiny_deepseek_fp8();
  tiny.module("model.layers.0.self_attn.embed_q", {2, 64, 64}, Fp8BlockFormat{Dtype::f32});
  EXPECT_THAT(refusal(tiny), States("'model.layers.0.self_attn.embed_q'", "fp8", 64, 128));
}

TEST_F(DeepseekModel, AllowsQueriesWithoutALatent) {
  TinyCheckpoint tiny = tiny_deepseek_mlx();
  tiny.config["q_lora_rank"] = nullptr;
  tiny.remove_all("self_attn.q_");
  EXPECT_THAT(refusal(tiny), States("'model.layers.0.self_attn.q_proj.weight'", "missing"));
  for (const char* layer : {"0", "1"})
    tiny.module(std::string("model.layers.") + layer + ".self_attn.q_proj", {160, 64}, kAffine4);
  EXPECT_EQ(refusal(tiny), "no error");
}

TEST_F(DeepseekModel, JoinsTwoSharedExpertsIntoOneOfTwiceTheSize) {
  TinyCheckpoint tiny = tiny_deepseek_mlx();
  tiny.config["n_shared_experts"] = 2u;
  EXPECT_THAT(refusal(tiny), States("n_shared_experts*moe_intermediate_size=128"));
  tiny.remove_all("shared_experts");
  tiny.module("model.layers.1.mlp.shared_experts.gate_proj", {128, 64}, kAffine4);
  tiny.module("model.layers.1.mlp.shared_experts.up_proj", {128, 64}, kAffine4);
  tiny.module("model.layers.1.mlp.shared_experts.down_proj", {64, 128}, kAffine4);
  EXPECT_EQ(refusal(tiny), "no error");
}

TEST_F(DeepseekModel, HasExpertsInItsMoeLayersOnly) {
  const auto model = open(tiny_deepseek_mlx());
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->experts(LayerId(0)), nullptr);
  ASSERT_NE(model->experts(LayerId(1)), nullptr);
  EXPECT_EQ(model->experts(LayerId(1))->count(), 4u);
}

}  // namespace
}  // namespace moeflux
