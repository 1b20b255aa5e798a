#include "pack/synthetic/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/model_config.h"
#include "source/testing/goldens.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;
using testing::IsEmpty;

PosixFileSystem disk;

ModelConfig parsed(const std::string& text) {
  const auto document = parse_json(text, "config.json");
  EXPECT_TRUE(document) << document.error().message();
  Notes notes;
  auto model = parse_model_config(ObjectReader(*document, "config.json"), notes);
  EXPECT_TRUE(model) << model.error().message();
  EXPECT_THAT(notes, IsEmpty());
  return *std::move(model);
}

ModelConfig model_of(std::string_view shape, const ShapeOverrides& overrides = {}) {
  const auto text = shape_config(disk, shape, overrides);
  EXPECT_TRUE(text) << text.error().message();
  return parsed(*text);
}

const MoeConfig& moe_of(const ModelConfig& model) { return std::get<MoeConfig>(model.layers.back().mlp); }

std::string kinds_of(const ModelConfig& model) {
  std::string kinds;
  for (const LayerConfig& layer : model.layers)
    kinds += std::holds_alternative<GatedAttentionConfig>(layer.mixer) ? 'f' : 'l';
  return kinds;
}

TEST(BuiltinShapes, AreNamed) {
  EXPECT_THAT(std::vector<std::string_view>(builtin_shapes().begin(), builtin_shapes().end()),
              ElementsAre("qwen3.5-35b-a3b", "qwen3.6-35b-a3b", "qwen3.5-122b-a10b", "qwen3.5-397b-a17b",
                          "deepseek-v3", "cogito-v2-671b"));
  for (const std::string_view name : builtin_shapes()) EXPECT_TRUE(is_builtin_shape(name));
  EXPECT_FALSE(is_builtin_shape("qwen3.5"));
}

TEST(BuiltinShapes, OfTheSmallerQwenAreThePublishedOnes) {
  const ModelConfig model = model_of("qwen3.5-35b-a3b");
  EXPECT_EQ(model.dim, 2048u);
  EXPECT_EQ(model.vocabulary, 248320u);
  EXPECT_EQ(model.max_positions, 262144u);
  EXPECT_EQ(model.norm_eps, 1e-6);
  EXPECT_FALSE(model.tied_embeddings);
  EXPECT_THAT(model.end_tokens, ElementsAre(TokenId(248046), TokenId(248044)));
  ASSERT_EQ(model.layers.size(), 40u);
  EXPECT_EQ(kinds_of(model), "lllflllflllflllflllflllflllflllflllflllf");
  const auto& net = std::get<GatedDeltaNetConfig>(model.layers[0].mixer);
  EXPECT_EQ(net, (GatedDeltaNetConfig{16, 32, 128, 128, 4}));
  const auto& attention = std::get<GatedAttentionConfig>(model.layers[3].mixer);
  EXPECT_EQ(attention.query_heads, 16u);
  EXPECT_EQ(attention.kv_heads, 2u);
  EXPECT_EQ(attention.head_dim, 256u);
  EXPECT_EQ(attention.rope.dims, 64u);
  EXPECT_EQ(attention.rope.theta, 1e7);
  const MoeConfig& moe = moe_of(model);
  EXPECT_EQ(moe.experts, 256u);
  EXPECT_EQ(moe.experts_per_token, 8u);
  EXPECT_EQ(moe.hidden_dim, 512u);
  EXPECT_EQ(moe.shared->hidden_dim, 512u);
}

TEST(BuiltinShapes, OfTheLargerQwenAreThePublishedOnes) {
  const ModelConfig model = model_of("qwen3.5-397b-a17b");
  EXPECT_EQ(model.dim, 4096u);
  ASSERT_EQ(model.layers.size(), 60u);
  EXPECT_EQ(std::get<GatedDeltaNetConfig>(model.layers[0].mixer), (GatedDeltaNetConfig{16, 64, 128, 128, 4}));
  const auto& attention = std::get<GatedAttentionConfig>(model.layers[59].mixer);
  EXPECT_EQ(attention.query_heads, 32u);
  EXPECT_EQ(attention.kv_heads, 2u);
  const MoeConfig& moe = moe_of(model);
  EXPECT_EQ(moe.experts, 512u);
  EXPECT_EQ(moe.experts_per_token, 10u);
  EXPECT_EQ(moe.hidden_dim, 1024u);
  EXPECT_EQ(moe.shared->hidden_dim, 1024u);
}

TEST(BuiltinShapes, OfTheMiddleQwenAreThePublishedOnes) {
  const ModelConfig model = model_of("qwen3.5-122b-a10b");
  EXPECT_EQ(model.dim, 3072u);
  EXPECT_EQ(model.vocabulary, 248320u);
  ASSERT_EQ(model.layers.size(), 48u);
  EXPECT_EQ(std::get<GatedDeltaNetConfig>(model.layers[0].mixer), (GatedDeltaNetConfig{16, 64, 128, 128, 4}));
  const auto& attention = std::get<GatedAttentionConfig>(model.layers[47].mixer);
  EXPECT_EQ(attention.query_heads, 32u);
  EXPECT_EQ(attention.kv_heads, 2u);
  const MoeConfig& moe = moe_of(model);
  EXPECT_EQ(moe.experts, 256u);
  EXPECT_EQ(moe.experts_per_token, 8u);
  EXPECT_EQ(moe.hidden_dim, 1024u);
  EXPECT_EQ(moe.shared->hidden_dim, 1024u);
}

TEST(BuiltinShapes, OfLaterReleasesAreThoseOfTheModelTheyWereMadeFrom) {
  EXPECT_EQ(model_of("qwen3.6-35b-a3b"), model_of("qwen3.5-35b-a3b"));
  ModelConfig cogito = model_of("cogito-v2-671b");
  EXPECT_EQ(cogito.vocabulary, 128815u);
  EXPECT_THAT(cogito.end_tokens, ElementsAre(TokenId(1)));
  cogito.vocabulary = 129280;
  EXPECT_EQ(cogito, model_of("deepseek-v3"));
}

TEST(BuiltinShapes, OfDeepseekAreThePublishedOnes) {
  const ModelConfig model = model_of("deepseek-v3");
  EXPECT_EQ(model.dim, 7168u);
  EXPECT_EQ(model.vocabulary, 129280u);
  EXPECT_EQ(model.max_positions, 163840u);
  ASSERT_EQ(model.layers.size(), 61u);
  EXPECT_EQ(std::get<DenseMlpConfig>(model.layers[2].mlp).hidden_dim, 18432u);
  const MoeConfig& moe = std::get<MoeConfig>(model.layers[3].mlp);
  EXPECT_EQ(moe.experts, 256u);
  EXPECT_EQ(moe.experts_per_token, 8u);
  EXPECT_EQ(moe.hidden_dim, 2048u);
  EXPECT_EQ(std::get<GroupedSigmoidRouterConfig>(moe.router), (GroupedSigmoidRouterConfig{8, 4, true, 2.5}));
  const auto& mla = std::get<MlaConfig>(model.layers[0].mixer);
  EXPECT_EQ(mla.heads, 128u);
  EXPECT_EQ(mla.query_latent_dim, 1536u);
  EXPECT_EQ(mla.latent_dim, 512u);
  EXPECT_EQ(mla.nope_dim, 128u);
  EXPECT_EQ(mla.rope_dim, 64u);
  EXPECT_EQ(mla.value_dim, 128u);
  EXPECT_EQ(mla.rope.theta, 1e4);
  EXPECT_EQ(mla.rope.yarn, (YarnConfig{40, 32, 1, 1, 1, 4096}));
}

TEST(ShapeConfig, TakesAConfigJsonOrItsDirectory) {
  const auto by_directory = shape_config(disk, golden("qwen35moe-tiny-mlx4").string());
  const auto by_file = shape_config(disk, (golden("qwen35moe-tiny-mlx4") / "config.json").string());
  ASSERT_TRUE(by_directory) << by_directory.error().message();
  ASSERT_TRUE(by_file) << by_file.error().message();
  EXPECT_EQ(*by_directory, *by_file);
  EXPECT_EQ(parsed(*by_file).dim, 128u);
}

TEST(ShapeConfig, NamesTheShapesWhenItKnowsNone) {
  const auto config = shape_config(disk, "qwen4");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code(), ErrorCode::not_found);
  EXPECT_THAT(config.error().message(),
              States("qwen4", "config.json", "qwen3.5-35b-a3b", "qwen3.5-397b-a17b", "deepseek-v3"));
}

TEST(ShapeConfig, RefusesAConfigThatDoesNotParse) {
  TemporaryDirectory directory;
  std::ofstream(directory / "config.json") << R"({"model_type": "llama"})";
  const auto config = shape_config(disk, directory.path().string());
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code(), ErrorCode::unsupported);
}

TEST(ShapeConfig, CutsAndExtendsThePatternOfLayers) {
  EXPECT_EQ(kinds_of(model_of("qwen3.5-397b-a17b", {.layers = 6})), "lllfll");
  EXPECT_EQ(kinds_of(model_of("qwen3.5-35b-a3b", {.layers = 43})).substr(36), "lllflll");
  EXPECT_EQ(kinds_of(model_of(golden("qwen35moe-tiny-bf16").string(), {.layers = 10})), "lllflllfll");
}

TEST(ShapeConfig, KeepsALayerWithExperts) {
  const auto dense = [](std::uint32_t layers) {
    std::size_t count = 0;
    for (const LayerConfig& layer : model_of("deepseek-v3", {.layers = layers}).layers)
      count += std::holds_alternative<DenseMlpConfig>(layer.mlp) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(dense(70), 3u);
  EXPECT_EQ(dense(4), 3u);
  EXPECT_EQ(dense(3), 2u);
  EXPECT_EQ(dense(1), 0u);
}

TEST(ShapeConfig, LowersTheExpertsOfATokenWithTheExperts) {
  EXPECT_EQ(moe_of(model_of("qwen3.5-35b-a3b", {.experts = 64})).experts_per_token, 8u);
  EXPECT_EQ(moe_of(model_of("qwen3.5-35b-a3b", {.experts = 5})).experts_per_token, 5u);
  EXPECT_EQ(moe_of(model_of("qwen3.5-35b-a3b", {.experts = 1024})).experts, 1024u);
}

TEST(ShapeConfig, FindsGroupsThatComeOutEven) {
  const auto router = [](std::uint32_t experts) {
    const ModelConfig model = model_of("deepseek-v3", {.experts = experts});
    const auto& grouped = std::get<GroupedSigmoidRouterConfig>(moe_of(model).router);
    return std::vector<std::uint32_t>{grouped.groups, grouped.groups_kept, moe_of(model).experts_per_token};
  };
  EXPECT_THAT(router(64), ElementsAre(8, 4, 8));
  EXPECT_THAT(router(16), ElementsAre(8, 4, 8));
  EXPECT_THAT(router(12), ElementsAre(6, 4, 8));
  EXPECT_THAT(router(100), ElementsAre(5, 2, 8));
  EXPECT_THAT(router(4), ElementsAre(2, 2, 4));
  EXPECT_THAT(router(7), ElementsAre(1, 1, 7));
}

RC_GTEST_PROP(ShapeConfig, ParsesWhateverTheOverrides, ()) {
  const auto names = builtin_shapes();
  const std::string_view name = names[*rc::gen::inRange<std::size_t>(0, names.size())];
  ShapeOverrides overrides;
  if (*rc::gen::arbitrary<bool>()) overrides.layers = *rc::gen::inRange<std::uint32_t>(1, 130);
  if (*rc::gen::arbitrary<bool>()) overrides.experts = *rc::gen::inRange<std::uint32_t>(2, 700);
  const ModelConfig model = model_of(name, overrides);
  if (overrides.layers) RC_ASSERT(model.layers.size() == *overrides.layers);
  if (overrides.experts) RC_ASSERT(moe_of(model).experts == *overrides.experts);
}

TEST(ShapeConfig, RejectsOverridesOutOfRange) {
  const auto refused = [](std::string_view shape, const ShapeOverrides& overrides) {
    const auto config = shape_config(disk, shape, overrides);
    return !config && config.error().code() == ErrorCode::invalid_argument ? config.error().message()
                                                                           : "accepted";
  };
  EXPECT_THAT(refused("deepseek-v3", {.layers = 0}), States("layers", 1, 1024, 0));
  EXPECT_THAT(refused("deepseek-v3", {.layers = 1025}), States("layers", 1, 1024, 1025));
  EXPECT_THAT(refused("deepseek-v3", {.experts = 1}), States("experts", 2, 65536, 1));
  EXPECT_THAT(refused("qwen3.5-35b-a3b", {.experts = 0}), States("experts", 1, 65536, 0));
}

}  // namespace
}  // namespace moeflux
