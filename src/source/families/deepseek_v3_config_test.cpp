#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/states.h"
#include "source/model_config.h"
#include "source/testing/goldens.h"
#include "source/testing/parsed_config.h"
#include "source/testing/tiny_models.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;
using testing::IsEmpty;

Json tiny() { return tiny_deepseek_mlx().config; }

const MlaConfig& mla_of(const ParsedConfig& config) { return std::get<MlaConfig>(config->layers[0].mixer); }
const MoeConfig& moe_of(const ParsedConfig& config) { return std::get<MoeConfig>(config->layers.back().mlp); }
const GroupedSigmoidRouterConfig& router_of(const ParsedConfig& config) {
  return std::get<GroupedSigmoidRouterConfig>(moe_of(config).router);
}

TEST(DeepseekConfig, ReadsTheGoldenCheckpoint) {
  const auto config = parsed(read_config(golden("deepseekv3-tiny-mlx4")));
  ASSERT_TRUE(config) << config.message();
  EXPECT_EQ(config->family, Family::deepseek_v3);
  EXPECT_EQ(config->dim, 128u);
  EXPECT_EQ(config->vocabulary, 512u);
  EXPECT_EQ(config->max_positions, 4096u);
  EXPECT_THAT(config->end_tokens, ElementsAre(TokenId(511)));
  ASSERT_EQ(config->layers.size(), 4u);
  const RopeConfig rope{.theta = 10000,
                        .dims = 16,
                        .pairing = RopePairing::interleaved,
                        .yarn = YarnConfig{40, 32, 1, 1, 1, 64}};
  EXPECT_EQ(mla_of(config), (MlaConfig{4, 64, 64, 32, 16, 32, rope}));
  EXPECT_EQ(std::get<DenseMlpConfig>(config->layers[0].mlp).hidden_dim, 256u);
  const MoeConfig moe{.experts = 16,
                      .experts_per_token = 4,
                      .hidden_dim = 64,
                      .router = GroupedSigmoidRouterConfig{4, 2, true, 2.5},
                      .shared = SharedExpertConfig{64, false}};
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(std::get<MoeConfig>(config->layers[i].mlp), moe);
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(DeepseekConfig, IsTheSameForEveryFormatOfAModel) {
  const auto mlx = parsed(read_config(golden("deepseekv3-tiny-mlx4")));
  for (const char* other : {"deepseekv3-tiny-bf16", "deepseekv3-tiny-fp8"}) {
    const auto config = parsed(read_config(golden(other)));
    ASSERT_TRUE(config) << config.message();
    EXPECT_EQ(*mlx, *config) << other;
  }
}

TEST(DeepseekConfig, ReadsThePublishedModel) {
  const auto config = parsed(Json::parse(R"({
      "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "aux_loss_alpha": 0.001,
      "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu",
      "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
      "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
      "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1,
      "norm_topk_prob": true, "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
      "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "pretraining_tp": 1, "q_lora_rank": 1536,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
      "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                       "original_max_position_embeddings": 4096, "type": "yarn"},
      "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true,
      "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
      "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128, "vocab_size": 129280})"));
  ASSERT_TRUE(config) << config.message();
  EXPECT_EQ(config->layers.size(), 61u);
  EXPECT_EQ(mla_of(config).query_dim(), 24576u);
  EXPECT_EQ(mla_of(config).rope.yarn->factor, 40);
  EXPECT_EQ(router_of(config), (GroupedSigmoidRouterConfig{8, 4, true, 2.5}));
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(DeepseekConfig, AllowsQueriesWithoutALatent) {
  const auto config = parsed(with(tiny(), {{"q_lora_rank", nullptr}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_EQ(mla_of(config).query_latent_dim, std::nullopt);
  EXPECT_EQ(mla_of(parsed(tiny())).query_latent_dim, 64u);
  EXPECT_THAT(parsed(without(tiny(), {"q_lora_rank"})).message(),
              States("config.json", "'q_lora_rank'", "missing"));
}

TEST(DeepseekConfig, ReadsTheNumberOfDenseLayers) {
  for (const std::size_t dense : {0u, 1u, 2u}) {
    const auto config = parsed(with(tiny(), {{"first_k_dense_replace", dense}}));
    ASSERT_TRUE(config) << config.message();
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_EQ(std::holds_alternative<DenseMlpConfig>(config->layers[i].mlp), i < dense);
  }
  EXPECT_THAT(parsed(with(tiny(), {{"first_k_dense_replace", 3}})).message(),
              States("'first_k_dense_replace'", 0, 2, 3, "number"));
}

TEST(DeepseekConfig, WithoutDenseLayersNeedsNoDenseSize) {
  const auto config = parsed(with(without(tiny(), {"intermediate_size"}), {{"first_k_dense_replace", 0}}));
  EXPECT_TRUE(config) << config.message();
  EXPECT_THAT(parsed(without(tiny(), {"intermediate_size"})).message(),
              States("config.json", "'intermediate_size'", "missing"));
}

TEST(DeepseekConfig, JoinsItsSharedExperts) {
  EXPECT_FALSE(moe_of(parsed(with(tiny(), {{"n_shared_experts", 0}}))).shared);
  EXPECT_EQ(moe_of(parsed(tiny())).shared, (SharedExpertConfig{64, false}));
  EXPECT_EQ(moe_of(parsed(with(tiny(), {{"n_shared_experts", 2}}))).shared, (SharedExpertConfig{128, false}));
}

TEST(DeepseekConfig, ReadsTheNormalizationOfWeights) {
  EXPECT_TRUE(router_of(parsed(tiny())).normalise);
  EXPECT_FALSE(router_of(parsed(with(tiny(), {{"norm_topk_prob", false}}))).normalise);
}

TEST(DeepseekConfig, HasPlainRopeOrYarn) {
  EXPECT_FALSE(mla_of(parsed(tiny())).rope.yarn);
  EXPECT_FALSE(mla_of(parsed(with(tiny(), {{"rope_scaling", nullptr}}))).rope.yarn);
  EXPECT_TRUE(mla_of(parsed(read_config(golden("deepseekv3-tiny-mlx4")))).rope.yarn);
}

TEST(DeepseekConfig, ReadsThePairingOfRotaryChannels) {
  EXPECT_EQ(mla_of(parsed(tiny())).rope.pairing, RopePairing::interleaved);
  EXPECT_EQ(mla_of(parsed(with(tiny(), {{"rope_interleave", true}}))).rope.pairing, RopePairing::interleaved);
  EXPECT_EQ(mla_of(parsed(with(tiny(), {{"rope_interleave", false}}))).rope.pairing, RopePairing::half_split);
}

TEST(DeepseekConfig, MayTieItsEmbeddings) {
  EXPECT_TRUE(parsed(with(tiny(), {{"tie_word_embeddings", true}}))->tied_embeddings);
  EXPECT_FALSE(parsed(without(tiny(), {"tie_word_embeddings"}))->tied_embeddings);
}

class DeepseekKey : public testing::TestWithParam<const char*> {};

TEST_P(DeepseekKey, IsNamedIfMissing) {
  EXPECT_THAT(parsed(without(tiny(), {GetParam()})).message(), States("config.json", GetParam(), "missing"));
}

TEST_P(DeepseekKey, IsNamedIfOfAnotherType) {
  EXPECT_THAT(parsed(with(tiny(), {{GetParam(), "text"}})).message(), States(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(, DeepseekKey,
                         testing::Values("hidden_size", "vocab_size", "max_position_embeddings",
                                         "rms_norm_eps", "num_hidden_layers", "first_k_dense_replace",
                                         "num_attention_heads", "q_lora_rank", "kv_lora_rank",
                                         "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "rope_theta",
                                         "n_routed_experts", "moe_intermediate_size", "n_group", "topk_group",
                                         "num_experts_per_tok", "norm_topk_prob", "routed_scaling_factor",
                                         "n_shared_experts", "intermediate_size"),
                         [](const auto& param_info) { return std::string(param_info.param); });

struct Variant {
  const char* key;
  Json value;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.key; }

class DeepseekVariant : public testing::TestWithParam<Variant> {};

TEST_P(DeepseekVariant, IsRejectedByName) {
  const auto config = parsed(with(tiny(), {{GetParam().key, GetParam().value}}));
  ASSERT_FALSE(config);
  EXPECT_EQ(config.model.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(config.message(), States(GetParam().key, GetParam().value.dump()));
}

INSTANTIATE_TEST_SUITE_P(, DeepseekVariant,
                         testing::Values(Variant{"hidden_act", "gelu"}, Variant{"attention_bias", true},
                                         Variant{"scoring_func", "softmax"}, Variant{"topk_method", "greedy"},
                                         Variant{"moe_layer_freq", 2}),
                         [](const auto& param_info) { return std::string(param_info.param.key); });

TEST(DeepseekConfig, RequiresGroupsThatDivideTheExperts) {
  EXPECT_THAT(parsed(with(tiny(), {{"n_group", 3}})).message(),
              States("'n_group'", "n_routed_experts", 4, 3));
  EXPECT_THAT(parsed(with(tiny(), {{"n_group", 4}})).message(), States("'n_group'", "n_routed_experts", 4));
  EXPECT_THAT(parsed(with(tiny(), {{"topk_group", 3}})).message(), States("'topk_group'", 1, 2, 3, "number"));
  EXPECT_THAT(parsed(with(tiny(), {{"num_experts_per_tok", 3}})).message(),
              States("'num_experts_per_tok'", 1, 2, 3, "number"));
}

TEST(DeepseekConfig, BoundsProductsOfSizes) {
  EXPECT_THAT(parsed(with(tiny(), {{"num_attention_heads", 65536}, {"qk_nope_head_dim", 65536}})).message(),
              States("'num_attention_heads'", 4194304));
  EXPECT_THAT(
      parsed(with(tiny(), {{"n_shared_experts", 1024}, {"moe_intermediate_size", 1 << 20}})).message(),
      States("'n_shared_experts'"));
  EXPECT_THAT(parsed(with(tiny(), {{"qk_rope_head_dim", 15}})).message(),
              States("'qk_rope_head_dim'", 15, "number"));
}

}  // namespace
}  // namespace moeflux
