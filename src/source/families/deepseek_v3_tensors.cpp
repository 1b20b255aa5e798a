// The tensors of the deepseek_v3 family.

#include <fmt/format.h>

#include "base/check.h"
#include "source/tensor_map.h"

namespace moeflux {
namespace {

constexpr const char* kBody = "model.";

Status map_attention(TensorMapper& mapper, const std::string& layer, const MlaConfig& mla, Dim dim) {
  const std::string base = layer + "self_attn.";
  const Dim queries{mla.query_dim(), "num_attention_heads*(qk_nope_head_dim+qk_rope_head_dim)"};
  const Dim heads{mla.heads, "num_attention_heads"};
  const Dim latent{mla.latent_dim, "kv_lora_rank"};
  if (mla.query_latent_dim) {
    const Dim query_latent{*mla.query_latent_dim, "q_lora_rank"};
    MF_TRY_STATUS(mapper.matrix(base + "q_a_proj", query_latent, dim));
    MF_TRY_STATUS(mapper.norm(base + "q_a_layernorm", query_latent));
    MF_TRY_STATUS(mapper.matrix(base + "q_b_proj", queries, query_latent));
  } else {
    MF_TRY_STATUS(mapper.matrix(base + "q_proj", queries, dim));
  }
  MF_TRY_STATUS(mapper.matrix(base + "kv_a_proj_with_mqa",
                              {mla.latent_dim + mla.rope_dim, "kv_lora_rank+qk_rope_head_dim"}, dim));
  MF_TRY_STATUS(mapper.norm(base + "kv_a_layernorm", latent));

  // Newer MLX conversions split kv_b_proj per head into a transposed key part and a value part.
  const std::string module = mapper.prefix() + base;
  const bool split = !mapper.catalog().with_prefix(module + "embed_q.").empty() ||
                     !mapper.catalog().with_prefix(module + "unembed_out.").empty();
  if (split) {
    MF_TRY_STATUS(mapper.stacked(base + "embed_q", heads, latent, {mla.nope_dim, "qk_nope_head_dim"}));
    MF_TRY_STATUS(mapper.stacked(base + "unembed_out", heads, {mla.value_dim, "v_head_dim"}, latent));
  } else {
    const Dim keys_and_values{std::uint64_t{mla.heads} * (mla.nope_dim + mla.value_dim),
                              "num_attention_heads*(qk_nope_head_dim+v_head_dim)"};
    MF_TRY_STATUS(mapper.matrix(base + "kv_b_proj", keys_and_values, latent));
  }
  return mapper.matrix(base + "o_proj", dim,
                       {std::uint64_t{mla.heads} * mla.value_dim, "num_attention_heads*v_head_dim"});
}

Status map_moe(TensorMapper& mapper, const std::string& layer, const MoeConfig& moe, Dim dim) {
  const Dim experts{moe.experts, "n_routed_experts"};
  MF_TRY_STATUS(mapper.matrix(layer + "mlp.gate", experts, dim));
  MF_TRY_STATUS(mapper.parameter(layer + "mlp.gate.e_score_correction_bias", experts));
  if (!moe.shared) return {};
  return mapper.swiglu(layer + "mlp.shared_experts",
                       {moe.shared->hidden_dim, "n_shared_experts*moe_intermediate_size"}, dim);
}

// Layers past the last one are for multi-token prediction; "rotary_emb.inv_freq" is derived from the config.
void skip_bystanders(TensorMapper& mapper, std::size_t layers, Notes& notes) {
  for (std::size_t i = layers; i < layers + 8; ++i)
    mapper.skip(fmt::format("{}layers.{}.", kBody, i), "multi-token prediction is not used", notes);
  for (std::size_t i = 0; i < layers; ++i)
    mapper.resolver().skip(fmt::format("{}layers.{}.self_attn.rotary_emb.inv_freq", kBody, i));
}

}  // namespace

Result<SourceTensors> map_deepseek_v3(const ModelConfig& model, MatrixResolver& resolver,
                                      ExpertLocator& experts, Notes& notes) {
  MF_REQUIRE(model.family == Family::deepseek_v3, "the model is of this family");
  TensorMapper mapper(resolver, kBody);
  const Dim dim{model.dim, "hidden_size"};

  MF_TRY_STATUS(mapper.matrix("embed_tokens", {model.vocabulary, "vocab_size"}, dim));
  std::vector<std::optional<SourceExperts>> routed;
  for (std::uint32_t i = 0; i < model.layers.size(); ++i) {
    const LayerConfig& config = model.layers[i];
    const std::string layer = fmt::format("layers.{}.", i);
    MF_TRY_STATUS(mapper.norm(layer + "input_layernorm", dim));
    MF_TRY_STATUS(map_attention(mapper, layer, std::get<MlaConfig>(config.mixer), dim));
    MF_TRY_STATUS(mapper.norm(layer + "post_attention_layernorm", dim));
    if (const auto* dense = std::get_if<DenseMlpConfig>(&config.mlp)) {
      MF_TRY_STATUS(mapper.swiglu(layer + "mlp", {dense->hidden_dim, "intermediate_size"}, dim));
      routed.emplace_back();
      continue;
    }
    const auto& moe = std::get<MoeConfig>(config.mlp);
    MF_TRY_STATUS(map_moe(mapper, layer, moe, dim));
    MF_TRY(
        SourceExperts found,
        experts.locate(LayerId(i), kBody + layer + "mlp",
                       {{moe.experts, "n_routed_experts"}, {moe.hidden_dim, "moe_intermediate_size"}, dim}));
    routed.emplace_back(std::move(found));
  }
  MF_TRY_STATUS(mapper.norm("norm", dim));
  MF_TRY_STATUS(mapper.output_head(model, "lm_head", notes));
  skip_bystanders(mapper, model.layers.size(), notes);
  mapper.note_unused(notes);
  return std::move(mapper).finish(std::move(routed));
}

}  // namespace moeflux
