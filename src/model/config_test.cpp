#include "model/config.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

TEST(GatedDeltaNetConfig, DerivesTheWidthsOfThePublishedModels) {
  const GatedDeltaNetConfig of_397b{
      .key_heads = 16, .value_heads = 64, .key_head_dim = 128, .value_head_dim = 128, .conv_width = 4};
  EXPECT_EQ(of_397b.key_dim(), 2048u);
  EXPECT_EQ(of_397b.value_dim(), 8192u);
  EXPECT_EQ(of_397b.conv_dim(), 12288u);
  GatedDeltaNetConfig of_35b = of_397b;
  of_35b.value_heads = 32;
  EXPECT_EQ(of_35b.conv_dim(), 8192u);
}

TEST(GatedDeltaNetConfig, KeepsKeyAndValueHeadSizesApart) {
  const GatedDeltaNetConfig net{
      .key_heads = 2, .value_heads = 6, .key_head_dim = 10, .value_head_dim = 100, .conv_width = 4};
  EXPECT_EQ(net.key_dim(), 20u);
  EXPECT_EQ(net.value_dim(), 600u);
  EXPECT_EQ(net.conv_dim(), 640u);
}

TEST(GatedAttentionConfig, DerivesTheWidthsOf397B) {
  const GatedAttentionConfig attention{.query_heads = 32, .kv_heads = 2, .head_dim = 256, .rope = {}};
  EXPECT_EQ(attention.query_dim(), 8192u);
  EXPECT_EQ(attention.kv_dim(), 512u);
}

TEST(MlaConfig, QueriesIncludeBothParts) {
  const MlaConfig mla{.heads = 128,
                      .query_latent_dim = 1536,
                      .latent_dim = 512,
                      .nope_dim = 128,
                      .rope_dim = 64,
                      .value_dim = 128,
                      .rope = {}};
  EXPECT_EQ(mla.query_dim(), 24576u);
}

TEST(Names, OfFamiliesAndMixersAreThoseOfTheirConfigs) {
  EXPECT_EQ(name_of(Family::qwen3_5_moe), "qwen3_5_moe");
  EXPECT_EQ(name_of(Family::deepseek_v3), "deepseek_v3");
  EXPECT_EQ(name_of(MixerConfig(GatedDeltaNetConfig{})), "gated_delta_net");
  EXPECT_EQ(name_of(MixerConfig(GatedAttentionConfig{})), "gated_attention");
  EXPECT_EQ(name_of(MixerConfig(MlaConfig{})), "mla");
}

TEST(Limits, KeepTheLargestLayerOfExpertsIn64Bits) {
  // experts x hidden x dim in 4-byte floats. A division, because the product itself might wrap.
  EXPECT_LE(kMaxExperts, ~std::uint64_t{0} / kMaxDim / kMaxDim / 4);
}

}  // namespace
}  // namespace moeflux
