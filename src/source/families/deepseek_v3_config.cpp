// The config of the deepseek_v3 family: MLA layers, dense first layers, sigmoid-routed experts in groups.

#include <fmt/format.h>

#include <array>

#include "source/model_config.h"

namespace moeflux {
namespace {

// Rejects settings that other releases of these models use and that would change the results.
Status refuse_variants(const ObjectReader& config) {
  MF_TRY_STATUS(config.only("hidden_act", "silu"));
  MF_TRY_STATUS(config.only("attention_bias", false));
  MF_TRY_STATUS(config.only("scoring_func", "sigmoid"));
  MF_TRY_STATUS(config.only("topk_method", "noaux_tc"));
  MF_TRY_STATUS(config.only("moe_layer_freq", 1));
  return {};
}

Result<MlaConfig> read_mla(const ObjectReader& config, Notes& notes) {
  MlaConfig mla{};
  MF_TRY(mla.heads, config.size("num_attention_heads", kMaxHeads));
  if (config.value("q_lora_rank") == nullptr) return config.missing("q_lora_rank");
  if (config.has("q_lora_rank")) {  // null: queries are projected in a single step
    MF_TRY(const std::uint32_t rank, config.size("q_lora_rank", kMaxDim));
    mla.query_latent_dim = rank;
  }
  MF_TRY(mla.latent_dim, config.size("kv_lora_rank", kMaxDim / 2));
  MF_TRY(mla.nope_dim, config.size("qk_nope_head_dim", kMaxHeads));
  MF_TRY(mla.rope_dim, config.size("qk_rope_head_dim", kMaxHeads));
  MF_TRY(mla.value_dim, config.size("v_head_dim", kMaxHeads));
  if (mla.rope_dim % 2 != 0) return config.wrong("qk_rope_head_dim", "an even number");
  const std::uint64_t widest =
      std::max({std::uint64_t{mla.nope_dim} + mla.rope_dim, std::uint64_t{mla.nope_dim} + mla.value_dim,
                std::uint64_t{mla.latent_dim}});
  if (mla.heads * widest > kMaxDim)
    return config.wrong("num_attention_heads",
                        fmt::format("small enough that all heads together are at most {} wide", kMaxDim));
  MF_TRY(const RopeKeys rope, read_rope_keys(config, notes));
  bool interleaved = true;
  if (config.has("rope_interleave")) {
    MF_TRY(interleaved, config.boolean("rope_interleave"));
  }
  mla.rope = {.theta = rope.theta,
              .dims = mla.rope_dim,
              .pairing = interleaved ? RopePairing::interleaved : RopePairing::half_split,
              .yarn = rope.yarn};
  return mla;
}

Result<MoeConfig> read_moe(const ObjectReader& config) {
  MoeConfig moe{};
  GroupedSigmoidRouterConfig router{};
  MF_TRY(moe.experts, config.size("n_routed_experts", kMaxExperts));
  MF_TRY(moe.hidden_dim, config.size("moe_intermediate_size", kMaxDim));
  MF_TRY(router.groups, config.size("n_group", moe.experts));
  if (moe.experts % router.groups != 0)
    return config.wrong("n_group", fmt::format("a divisor of n_routed_experts {}", moe.experts));
  const std::uint32_t group_size = moe.experts / router.groups;
  if (group_size < 2)  // a group's score is the sum of its two best experts
    return config.wrong("n_group", fmt::format("at most half of n_routed_experts {}", moe.experts));
  MF_TRY(router.groups_kept, config.size("topk_group", router.groups));
  MF_TRY(moe.experts_per_token, config.size("num_experts_per_tok", router.groups_kept * group_size));
  MF_TRY(router.normalise, config.boolean("norm_topk_prob"));
  MF_TRY(router.scale, config.number("routed_scaling_factor", 1e-6, 1e6));
  moe.router = router;
  MF_TRY(const std::uint32_t shared, config.size("n_shared_experts", 1024, 0));
  if (std::uint64_t{shared} * moe.hidden_dim > kMaxDim)
    return config.wrong(
        "n_shared_experts",
        fmt::format("small enough that all shared experts together are at most {} wide", kMaxDim));
  if (shared > 0) moe.shared = SharedExpertConfig{.hidden_dim = shared * moe.hidden_dim, .gated = false};
  return moe;
}

}  // namespace

Result<ModelConfig> parse_deepseek_v3_config(const ObjectReader& config, Notes& notes) {
  MF_TRY_STATUS(refuse_variants(config));
  ModelConfig model{};
  model.family = Family::deepseek_v3;
  MF_TRY(model.dim, config.size("hidden_size", kMaxDim));
  MF_TRY(model.vocabulary, config.size("vocab_size", kMaxDim));
  MF_TRY(model.max_positions, config.size("max_position_embeddings", kMaxPositions));
  MF_TRY(model.norm_eps, config.number("rms_norm_eps", 1e-12, 1));
  if (config.has("tie_word_embeddings")) {
    MF_TRY(model.tied_embeddings, config.boolean("tie_word_embeddings"));
  }
  MF_TRY(model.end_tokens, read_end_tokens(config, model.vocabulary));

  MF_TRY(const std::uint32_t layers, config.size("num_hidden_layers", kMaxLayers));
  MF_TRY(const std::uint32_t dense_layers, config.size("first_k_dense_replace", layers, 0));
  MF_TRY(const MlaConfig mla, read_mla(config, notes));
  MF_TRY(const MoeConfig moe, read_moe(config));
  DenseMlpConfig dense{};
  if (dense_layers > 0) {
    MF_TRY(dense.hidden_dim, config.size("intermediate_size", kMaxDim));
  } else {
    config.ignore(std::array<std::string_view, 1>{"intermediate_size"});
  }
  for (std::uint32_t i = 0; i < layers; ++i)
    model.layers.push_back({mla, i < dense_layers ? MlpConfig(dense) : MlpConfig(moe)});

  config.ignore(std::array<std::string_view, 3>{"model_type", "quantization", "quantization_config"});
  note_unknown_keys(config, notes);
  return model;
}

}  // namespace moeflux
