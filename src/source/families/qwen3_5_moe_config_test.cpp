#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/testing/states.h"
#include "source/model_config.h"
#include "source/testing/goldens.h"
#include "source/testing/parsed_config.h"
#include "source/testing/tiny_models.h"

namespace moeflux {
namespace {

using test::States;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

Json tiny() { return tiny_qwen_mlx().config; }

Json nested(Json text) { return {{"model_type", "qwen3_5_moe"}, {"text_config", std::move(text)}}; }

std::vector<std::string> mixers_of(const ModelConfig& model) {
  std::vector<std::string> names;
  for (const LayerConfig& layer : model.layers) names.emplace_back(name_of(layer.mixer));
  return names;
}

const GatedAttentionConfig& attention_of(const ModelConfig& model) {
  return std::get<GatedAttentionConfig>(model.layers.back().mixer);
}

TEST(QwenConfig, ReadsTheGoldenCheckpoint) {
  const auto config = parsed(read_config(golden("qwen35moe-tiny-mlx4")));
  ASSERT_TRUE(config) << config.message();
  EXPECT_EQ(config->family, Family::qwen3_5_moe);
  EXPECT_EQ(config->dim, 128u);
  EXPECT_EQ(config->vocabulary, 512u);
  EXPECT_EQ(config->max_positions, 4096u);
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_THAT(config->end_tokens, ElementsAre(TokenId(511)));
  EXPECT_THAT(mixers_of(*config),
              ElementsAre("gated_delta_net", "gated_delta_net", "gated_delta_net", "gated_attention",
                          "gated_delta_net", "gated_delta_net", "gated_delta_net", "gated_attention"));
  EXPECT_EQ(std::get<GatedDeltaNetConfig>(config->layers[0].mixer), (GatedDeltaNetConfig{2, 4, 32, 32, 4}));
  const RopeConfig rope{.theta = 1e7, .dims = 8, .pairing = RopePairing::half_split, .yarn = {}};
  EXPECT_EQ(attention_of(*config), (GatedAttentionConfig{4, 2, 32, rope}));
  const MoeConfig moe{.experts = 8,
                      .experts_per_token = 3,
                      .hidden_dim = 64,
                      .router = SoftmaxRouterConfig{},
                      .shared = SharedExpertConfig{64, true}};
  for (const LayerConfig& layer : config->layers) EXPECT_EQ(std::get<MoeConfig>(layer.mlp), moe);
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(QwenConfig, IsTheSameForEveryFormatOfAModel) {
  const auto mlx = parsed(read_config(golden("qwen35moe-tiny-mlx4")));
  const auto bf16 = parsed(read_config(golden("qwen35moe-tiny-bf16")));
  ASSERT_TRUE(mlx && bf16);
  EXPECT_EQ(*mlx, *bf16);
}

TEST(QwenConfig, IsTheSameFlatAndNested) {
  const auto flat = parsed(tiny());
  const auto inside = parsed(nested(without(tiny(), {"quantization"})));
  ASSERT_TRUE(flat) << flat.message();
  ASSERT_TRUE(inside) << inside.message();
  EXPECT_EQ(*flat, *inside);
  EXPECT_THAT(inside.notes, IsEmpty());
}

TEST(QwenConfig, IsTheSameWithLayerTypesAndWithAnInterval) {
  Json eight = with(tiny(), {{"num_hidden_layers", 8}});
  eight["layer_types"] = read_config(golden("qwen35moe-tiny-mlx4"))["text_config"]["layer_types"];
  const auto by_types = parsed(eight);
  const auto by_interval = parsed(with(without(eight, {"layer_types"}), {{"full_attention_interval", 4}}));
  const auto by_both = parsed(with(eight, {{"full_attention_interval", 4}}));
  ASSERT_TRUE(by_types && by_interval && by_both);
  EXPECT_EQ(*by_types, *by_interval);
  EXPECT_EQ(*by_types, *by_both);
  EXPECT_THAT(by_both.notes, IsEmpty());
}

TEST(QwenConfig, PrefersLayerTypesToADifferentIntervalWithANote) {
  const auto config = parsed(with(tiny(), {{"full_attention_interval", 1}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_THAT(mixers_of(*config), ElementsAre("gated_delta_net", "gated_attention"));
  EXPECT_THAT(config.notes,
              ElementsAre(States("'layer_types'", "'full_attention_interval'", "differ", "used")));
}

TEST(QwenConfig, NamesBothKeysIfBothAreMissing) {
  EXPECT_THAT(parsed(without(tiny(), {"layer_types"})).message(),
              States("config.json", "'layer_types'", "'full_attention_interval'", "missing"));
}

TEST(QwenConfig, RequiresAKnownTypePerLayer) {
  EXPECT_THAT(parsed(with(tiny(), {{"num_hidden_layers", 3}})).message(),
              States("'layer_types'", 3, 2, "array"));
  const Json sliding = Json::parse(R"(["linear_attention", "sliding_attention"])");
  EXPECT_THAT(parsed(with(tiny(), {{"layer_types", sliding}})).message(), States("'sliding_attention'"));
}

TEST(QwenConfig, ReadsTheOldRopeKeys) {
  const auto newer = parsed(tiny());
  const auto older =
      parsed(with(without(tiny(), {"rope_parameters"}),
                  {{"rope_theta", 1e7}, {"partial_rotary_factor", 0.25}, {"rope_scaling", nullptr}}));
  ASSERT_TRUE(older) << older.message();
  EXPECT_EQ(*newer, *older);
  EXPECT_EQ(attention_of(*older).rope.dims, 8u);
}

TEST(QwenConfig, NotesRopeKeysThatDiffer) {
  const auto config = parsed(with(tiny(), {{"partial_rotary_factor", 0.5}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_EQ(attention_of(*config).rope.dims, 8u);
  EXPECT_THAT(config.notes, ElementsAre(States("'partial_rotary_factor'", "0.25", "rope_parameters", "0.5")));
}

TEST(QwenConfig, RequiresAnEvenNumberOfRotaryChannels) {
  for (const double factor : {0.0, 0.1}) {  // 0 and 3 of 32
    Json config = tiny();
    config["rope_parameters"]["partial_rotary_factor"] = factor;
    EXPECT_THAT(parsed(config).message(), States("number"));
  }
}

TEST(QwenConfig, ReadsTiedEmbeddingsFromEitherLevel) {
  EXPECT_TRUE(parsed(with(tiny(), {{"tie_word_embeddings", true}}))->tied_embeddings);
  EXPECT_FALSE(parsed(without(tiny(), {"tie_word_embeddings"}))->tied_embeddings);
  const Json text = without(tiny(), {"quantization", "tie_word_embeddings"});
  const auto outside = parsed(with(nested(text), {{"tie_word_embeddings", true}}));
  ASSERT_TRUE(outside) << outside.message();
  EXPECT_TRUE(outside->tied_embeddings);
}

TEST(QwenConfig, PrefersTheInnerOfTwoDifferentKeysWithANote) {
  const Json text = without(tiny(), {"quantization"});
  const auto config = parsed(with(nested(text), {{"tie_word_embeddings", true}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_THAT(config.notes, ElementsAre(States("'tie_word_embeddings'", "text_config", "differs", "used")));
}

TEST(QwenConfig, HasTheEndTokensOfBothLevels) {
  const Json text = without(tiny(), {"quantization"});
  const auto config = parsed(with(nested(text), {{"eos_token_id", {7, 95}}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_THAT(config->end_tokens, ElementsAre(TokenId(7), TokenId(95)));
  EXPECT_THAT(config.notes, testing::IsEmpty());
}

TEST(QwenConfig, MayHaveNoSharedExpert) {
  const auto config = parsed(with(tiny(), {{"shared_expert_intermediate_size", 0}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_FALSE(std::get<MoeConfig>(config->layers[0].mlp).shared);
}

TEST(QwenConfig, NotesUnknownKeysOfBothLevels) {
  const Json text = with(without(tiny(), {"quantization"}), {{"inner_knob", 1}});
  const auto config = parsed(with(nested(text), {{"outer_knob", 1}, {"vision_config", Json::object()}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_THAT(config.notes, ElementsAre("config.json: text_config: unknown keys ignored: inner_knob",
                                        "config.json: unknown keys ignored: outer_knob"));
}

class QwenKey : public testing::TestWithParam<const char*> {};

TEST_P(QwenKey, IsNamedIfMissingFlatOrNested) {
  const Json less = without(tiny(), {GetParam()});
  EXPECT_THAT(parsed(less).message(), States("config.json", GetParam(), "missing"));
  EXPECT_THAT(parsed(nested(without(less, {"quantization"}))).message(),
              States("config.json", "text_config", GetParam(), "missing"));
}

TEST_P(QwenKey, IsNamedIfOfAnotherType) {
  EXPECT_THAT(parsed(with(tiny(), {{GetParam(), "text"}})).message(), States(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(, QwenKey,
                         testing::Values("hidden_size", "vocab_size", "max_position_embeddings",
                                         "rms_norm_eps", "num_hidden_layers", "linear_num_key_heads",
                                         "linear_num_value_heads", "linear_key_head_dim",
                                         "linear_value_head_dim", "linear_conv_kernel_dim",
                                         "num_attention_heads", "num_key_value_heads", "head_dim",
                                         "num_experts", "num_experts_per_tok", "moe_intermediate_size",
                                         "shared_expert_intermediate_size"),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(QwenConfig, NamesAMissingRopeKey) {
  EXPECT_THAT(parsed(without(tiny(), {"rope_parameters"})).message(),
              States("config.json", "'rope_theta'", "missing"));
  Json config = tiny();
  config["rope_parameters"].erase("partial_rotary_factor");
  EXPECT_THAT(parsed(config).message(), States("config.json", "'partial_rotary_factor'", "missing"));
}

struct Variant {
  const char* key;
  Json value;
  std::vector<std::string> facts;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.key; }

class QwenVariant : public testing::TestWithParam<Variant> {};

TEST_P(QwenVariant, IsRejectedByName) {
  const auto config = parsed(with(tiny(), {{GetParam().key, GetParam().value}}));
  ASSERT_FALSE(config);
  EXPECT_EQ(config.model.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(config.message(),
              testing::AllOf(States(std::string("'") + GetParam().key + "'"),
                             testing::MakePolymorphicMatcher(test::StatesMatcher(GetParam().facts))));
}

INSTANTIATE_TEST_SUITE_P(, QwenVariant,
                         testing::Values(Variant{"hidden_act", "gelu", {"gelu", "silu"}},
                                         Variant{"attention_bias", true, {"true", "false"}},
                                         Variant{"attn_output_gate", false, {"false", "true"}},
                                         Variant{"norm_topk_prob", false, {"false", "true"}},
                                         Variant{"decoder_sparse_step", 2, {"2", "1"}},
                                         Variant{
                                             "mlp_only_layers", Json::array({0}), {"an array of 1", "[]"}},
                                         Variant{"use_sliding_window", true, {"true", "false"}},
                                         Variant{"sliding_window", 4096, {"4096", "null"}}),
                         [](const auto& param_info) { return std::string(param_info.param.key); });

TEST(QwenConfig, RejectsYarnByName) {
  Json config = tiny();
  config["rope_parameters"] =
      Json::parse(R"({"rope_type": "yarn", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
      "factor": 4, "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1,
      "original_max_position_embeddings": 4096})");
  EXPECT_THAT(parsed(config).message(), States("config.json", "'yarn'", "qwen3_5_moe"));
}

TEST(QwenConfig, RequiresHeadsThatDivide) {
  EXPECT_THAT(parsed(with(tiny(), {{"linear_num_value_heads", 3}})).message(),
              States("'linear_num_value_heads'", "linear_num_key_heads", 2, 3));
  EXPECT_THAT(parsed(with(tiny(), {{"num_key_value_heads", 3}, {"num_attention_heads", 4}})).message(),
              States("'num_attention_heads'", "num_key_value_heads", 3, 4));
}

TEST(QwenConfig, BoundsProductsOfSizes) {
  EXPECT_THAT(parsed(with(tiny(), {{"num_attention_heads", 65536}, {"head_dim", 65536}})).message(),
              States("'num_attention_heads'", 4194304));
  EXPECT_THAT(
      parsed(with(tiny(), {{"linear_num_value_heads", 65536}, {"linear_value_head_dim", 65536}})).message(),
      States("'linear_num_value_heads'"));
  EXPECT_THAT(parsed(with(tiny(), {{"num_experts_per_tok", 5}})).message(),
              States("'num_experts_per_tok'", 1, 4, 5, "number"));
  EXPECT_THAT(parsed(with(tiny(), {{"num_hidden_layers", 4000000000u}})).message(),
              States("'num_hidden_layers'", 1, 1024, "number"));
}

}  // namespace
}  // namespace moeflux
