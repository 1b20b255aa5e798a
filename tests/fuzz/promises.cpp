#include "fuzz/promises.h"

#include <cmath>

namespace moeflux::fuzz {
namespace {

bool is_width(std::uint64_t size) { return size >= 1 && size <= kMaxDim; }

void require_rope(const RopeConfig& rope, std::uint32_t head_dim) {
  MF_REQUIRE(std::isfinite(rope.theta) && rope.theta >= 1, "theta is a base");
  MF_REQUIRE(rope.dims >= 2 && rope.dims % 2 == 0 && rope.dims <= head_dim, "channels turn in pairs");
  if (!rope.yarn) return;
  for (const double number : {rope.yarn->factor, rope.yarn->beta_fast, rope.yarn->beta_slow})
    MF_REQUIRE(std::isfinite(number) && number > 0, "YaRN's numbers can be divided by");
  MF_REQUIRE(rope.yarn->original_positions >= 1, "YaRN stretches something");
}

// Products in 64 bits; the config's own functions multiply in 32.
std::uint64_t product(std::uint32_t a, std::uint32_t b) { return std::uint64_t{a} * b; }

void require_mixer(const GatedDeltaNetConfig& net) {
  MF_REQUIRE(net.key_heads >= 1 && net.value_heads >= 1 && net.value_heads % net.key_heads == 0,
             "value heads are a multiple of key heads");
  MF_REQUIRE(is_width(product(net.key_heads, net.key_head_dim)) &&
                 is_width(product(net.value_heads, net.value_head_dim)) && is_width(net.conv_dim()),
             "widths are bounded");
  MF_REQUIRE(net.conv_width >= 1 && net.conv_width <= 64, "the convolution is short");
}

void require_mixer(const GatedAttentionConfig& attention) {
  MF_REQUIRE(attention.kv_heads >= 1 && attention.query_heads >= 1 &&
                 attention.query_heads % attention.kv_heads == 0,
             "query heads are a multiple of kv heads");
  MF_REQUIRE(is_width(2 * product(attention.query_heads, attention.head_dim)), "widths are bounded");
  require_rope(attention.rope, attention.head_dim);
}

void require_mixer(const MlaConfig& mla) {
  MF_REQUIRE(mla.heads >= 1 && mla.nope_dim >= 1 && mla.rope_dim >= 1 && mla.value_dim >= 1,
             "heads have parts");
  MF_REQUIRE(!mla.query_latent_dim || is_width(*mla.query_latent_dim), "widths are bounded");
  MF_REQUIRE(is_width(product(mla.heads, mla.nope_dim + mla.rope_dim)) &&
                 is_width(product(mla.heads, mla.nope_dim + mla.value_dim)) &&
                 is_width(product(mla.heads, mla.latent_dim)) &&
                 is_width(std::uint64_t{mla.latent_dim} + mla.rope_dim),
             "widths are bounded");
  require_rope(mla.rope, mla.rope_dim);
}

void require_mlp(const DenseMlpConfig& dense) {
  MF_REQUIRE(is_width(dense.hidden_dim), "widths are bounded");
}

void require_mlp(const MoeConfig& moe) {
  MF_REQUIRE(moe.experts >= 1 && moe.experts <= kMaxExperts, "there are experts");
  MF_REQUIRE(moe.experts_per_token >= 1 && moe.experts_per_token <= moe.experts,
             "a token visits experts that exist");
  MF_REQUIRE(is_width(moe.hidden_dim), "widths are bounded");
  MF_REQUIRE(!moe.shared || is_width(moe.shared->hidden_dim), "widths are bounded");
  const auto* grouped = std::get_if<GroupedSigmoidRouterConfig>(&moe.router);
  if (grouped == nullptr) return;
  MF_REQUIRE(grouped->groups >= 1 && moe.experts % grouped->groups == 0, "groups are equal");
  MF_REQUIRE(moe.experts / grouped->groups >= 2, "a group has two best");
  MF_REQUIRE(grouped->groups_kept >= 1 && grouped->groups_kept <= grouped->groups, "kept groups exist");
  MF_REQUIRE(moe.experts_per_token <= grouped->groups_kept * (moe.experts / grouped->groups),
             "the kept groups have enough experts");
  MF_REQUIRE(std::isfinite(grouped->scale) && grouped->scale > 0, "the scale is a positive number");
}

}  // namespace

void require_runnable(const ModelConfig& config) {
  MF_REQUIRE(is_width(config.dim) && is_width(config.vocabulary), "widths are bounded");
  MF_REQUIRE(config.max_positions >= 1 && config.max_positions <= kMaxPositions, "the context is bounded");
  MF_REQUIRE(config.norm_eps > 0 && config.norm_eps <= 1, "norms do not divide by zero");
  MF_REQUIRE(!config.layers.empty() && config.layers.size() <= kMaxLayers, "layers are bounded");
  for (const TokenId token : config.end_tokens)
    MF_REQUIRE(token.index() < config.vocabulary, "an end token is one of the vocabulary");
  for (const LayerConfig& layer : config.layers) {
    std::visit([](const auto& mixer) { require_mixer(mixer); }, layer.mixer);
    std::visit([](const auto& mlp) { require_mlp(mlp); }, layer.mlp);
    const bool is_mla = std::holds_alternative<MlaConfig>(layer.mixer);
    MF_REQUIRE(is_mla == (config.family == Family::deepseek_v3), "a family has its own mixers");
  }
}

}  // namespace moeflux::fuzz
