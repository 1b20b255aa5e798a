#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "source/model_config.h"
#include "source/testing/goldens.h"
#include "source/testing/parsed_config.h"
#include "source/testing/tiny_models.h"

namespace moeflux {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
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

TEST(QwenConfig, OfTheGoldenCheckpointIsReadWhole) {
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

TEST(QwenConfig, PrefersLayerTypesToADifferingIntervalWithANote) {
  const auto config = parsed(with(tiny(), {{"full_attention_interval", 1}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_THAT(mixers_of(*config), ElementsAre("gated_delta_net", "gated_attention"));
  EXPECT_THAT(config.notes, ElementsAre(HasSubstr("'layer_types' and 'full_attention_interval' differ; "
                                                  "'layer_types' is used")));
}

TEST(QwenConfig, NamesBothKeysWhenItHasNeither) {
  EXPECT_EQ(parsed(without(tiny(), {"layer_types"})).message(),
            "config.json: 'layer_types' is missing, and so is 'full_attention_interval'");
}

TEST(QwenConfig, WantsAKnownTypeForEachLayer) {
  EXPECT_THAT(parsed(with(tiny(), {{"num_hidden_layers", 3}})).message(),
              HasSubstr("'layer_types' must be one entry for each of the 3 layers, found an array of 2"));
  const Json sliding = Json::parse(R"(["linear_attention", "sliding_attention"])");
  EXPECT_THAT(parsed(with(tiny(), {{"layer_types", sliding}})).message(),
              HasSubstr("layer type 'sliding_attention' is not supported"));
}

TEST(QwenConfig, ReadsTheOldRopeKeysToo) {
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
  EXPECT_THAT(config.notes,
              ElementsAre(HasSubstr("'partial_rotary_factor' is 0.25 in rope_parameters and 0.5")));
}

TEST(QwenConfig, WantsAnEvenNumberOfRotaryChannels) {
  for (const double factor : {0.0, 0.1}) {  // 0 and 3 of 32
    Json config = tiny();
    config["rope_parameters"]["partial_rotary_factor"] = factor;
    EXPECT_THAT(parsed(config).message(), HasSubstr("rotary channels; expected an even number"));
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

TEST(QwenConfig, PrefersTheInnerOfTwoDifferingKeysWithANote) {
  const Json text = without(tiny(), {"quantization"});
  const auto config = parsed(with(nested(text), {{"tie_word_embeddings", true}, {"eos_token_id", 7}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_THAT(config->end_tokens, ElementsAre(TokenId(95)));
  EXPECT_THAT(
      config.notes,
      ElementsAre(HasSubstr("'tie_word_embeddings' differs from the one in text_config, which is used"),
                  HasSubstr("'eos_token_id' differs")));
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

TEST_P(QwenKey, IsNamedWhenItIsMissingFlatOrNested) {
  const Json less = without(tiny(), {GetParam()});
  EXPECT_EQ(parsed(less).message(), std::string("config.json: '") + GetParam() + "' is missing");
  EXPECT_EQ(parsed(nested(without(less, {"quantization"}))).message(),
            std::string("config.json: text_config: '") + GetParam() + "' is missing");
}

TEST_P(QwenKey, IsNamedWhenItIsOfAnotherKind) {
  EXPECT_THAT(parsed(with(tiny(), {{GetParam(), "text"}})).message(),
              HasSubstr(std::string("'") + GetParam() + "' must be "));
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

TEST(QwenConfig, NamesTheRopeKeyThatIsMissing) {
  EXPECT_EQ(parsed(without(tiny(), {"rope_parameters"})).message(), "config.json: 'rope_theta' is missing");
  Json config = tiny();
  config["rope_parameters"].erase("partial_rotary_factor");
  EXPECT_EQ(parsed(config).message(), "config.json: 'partial_rotary_factor' is missing");
}

struct Variant {
  const char* key;
  Json value;
  const char* telling;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.key; }

class QwenVariant : public testing::TestWithParam<Variant> {};

TEST_P(QwenVariant, IsRefusedByName) {
  const auto config = parsed(with(tiny(), {{GetParam().key, GetParam().value}}));
  ASSERT_FALSE(config);
  EXPECT_EQ(config.model.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(config.message(), HasSubstr(std::string("'") + GetParam().key + "' is " + GetParam().telling));
}

INSTANTIATE_TEST_SUITE_P(
    , QwenVariant,
    testing::Values(Variant{"hidden_act", "gelu", "\"gelu\", and only \"silu\" is supported"},
                    Variant{"attention_bias", true, "true, and only false is supported"},
                    Variant{"attn_output_gate", false, "false, and only true is supported"},
                    Variant{"norm_topk_prob", false, "false, and only true is supported"},
                    Variant{"decoder_sparse_step", 2, "2, and only 1 is supported"},
                    Variant{"mlp_only_layers", Json::array({0}), "an array of 1, and only [] is supported"},
                    Variant{"use_sliding_window", true, "true, and only false is supported"},
                    Variant{"sliding_window", 4096, "4096, and only null is supported"}),
    [](const auto& param_info) { return std::string(param_info.param.key); });

TEST(QwenConfig, WithYarnIsRefusedByName) {
  Json config = tiny();
  config["rope_parameters"] =
      Json::parse(R"({"rope_type": "yarn", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
      "factor": 4, "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1,
      "original_max_position_embeddings": 4096})");
  EXPECT_EQ(parsed(config).message(), "config.json: rope type 'yarn' is not supported for qwen3_5_moe");
}

TEST(QwenConfig, WantsHeadsThatDivide) {
  EXPECT_THAT(parsed(with(tiny(), {{"linear_num_value_heads", 3}})).message(),
              HasSubstr("'linear_num_value_heads' must be a multiple of linear_num_key_heads 2, found 3"));
  EXPECT_THAT(parsed(with(tiny(), {{"num_key_value_heads", 3}, {"num_attention_heads", 4}})).message(),
              HasSubstr("'num_attention_heads' must be a multiple of num_key_value_heads 3, found 4"));
}

TEST(QwenConfig, BoundsProductsOfSizes) {
  EXPECT_THAT(parsed(with(tiny(), {{"num_attention_heads", 65536}, {"head_dim", 65536}})).message(),
              HasSubstr("'num_attention_heads' must be so that all heads together are at most 4194304 wide"));
  EXPECT_THAT(
      parsed(with(tiny(), {{"linear_num_value_heads", 65536}, {"linear_value_head_dim", 65536}})).message(),
      HasSubstr("'linear_num_value_heads' must be so that all heads together"));
  EXPECT_THAT(parsed(with(tiny(), {{"num_experts_per_tok", 5}})).message(),
              HasSubstr("'num_experts_per_tok' must be a whole number from 1 to 4, found 5"));
  EXPECT_THAT(parsed(with(tiny(), {{"num_hidden_layers", 4000000000u}})).message(),
              HasSubstr("'num_hidden_layers' must be a whole number from 1 to 1024"));
}

}  // namespace
}  // namespace moeflux
