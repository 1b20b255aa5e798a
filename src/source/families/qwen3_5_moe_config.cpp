// The config of the qwen3_5_moe family: GatedDeltaNet and gated attention layers, softmax-routed experts.

#include <fmt/format.h>

#include "base/printable.h"
#include "source/end_tokens.h"
#include "source/model_config.h"

namespace moeflux {
namespace {

// Rejects settings that other releases of these models use and that would change the results.
Status refuse_variants(const ObjectReader& text) {
  MF_TRY_STATUS(text.only("hidden_act", "silu"));
  MF_TRY_STATUS(text.only("attention_bias", false));
  MF_TRY_STATUS(text.only("attn_output_gate", true));
  MF_TRY_STATUS(text.only("norm_topk_prob", true));
  MF_TRY_STATUS(text.only("decoder_sparse_step", 1));
  MF_TRY_STATUS(text.only("mlp_only_layers", Json::array()));
  MF_TRY_STATUS(text.only("use_sliding_window", false));
  MF_TRY_STATUS(text.only("sliding_window", nullptr));
  return {};
}

// Per layer, true for full attention: from `layer_types`, or every `full_attention_interval`-th layer.
Result<std::vector<bool>> read_layer_kinds(const ObjectReader& text, std::uint32_t layers, Notes& notes) {
  std::vector<bool> by_interval;
  if (text.has("full_attention_interval")) {
    MF_TRY(const std::uint32_t interval, text.size("full_attention_interval", kMaxLayers));
    for (std::uint32_t i = 0; i < layers; ++i) by_interval.push_back((i + 1) % interval == 0);
  }
  if (!text.has("layer_types")) {
    if (by_interval.empty())
      return Error{
          ErrorCode::corrupt_data,
          fmt::format("{}: 'layer_types' is missing, and so is 'full_attention_interval'", text.where())};
    return by_interval;
  }
  MF_TRY(const std::vector<std::string> types, text.texts("layer_types", kMaxLayers));
  if (types.size() != layers)
    return text.wrong("layer_types", fmt::format("one entry for each of the {} layers", layers));
  std::vector<bool> full;
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "linear_attention")
      return Error{
          ErrorCode::unsupported,
          fmt::format("{}: layer type '{}' is not supported; linear_attention and full_attention are",
                      text.where(), printable(type))};
    full.push_back(type == "full_attention");
  }
  if (!by_interval.empty() && by_interval != full)
    notes.push_back(fmt::format(
        "{}: 'layer_types' and 'full_attention_interval' differ; 'layer_types' is used", text.where()));
  return full;
}

Result<GatedDeltaNetConfig> read_delta_net(const ObjectReader& text) {
  GatedDeltaNetConfig net{};
  MF_TRY(net.key_heads, text.size("linear_num_key_heads", kMaxHeads));
  MF_TRY(net.value_heads, text.size("linear_num_value_heads", kMaxHeads));
  MF_TRY(net.key_head_dim, text.size("linear_key_head_dim", kMaxHeads));
  MF_TRY(net.value_head_dim, text.size("linear_value_head_dim", kMaxHeads));
  MF_TRY(net.conv_width, text.size("linear_conv_kernel_dim", 64));
  if (net.value_heads % net.key_heads != 0)
    return text.wrong("linear_num_value_heads",
                      fmt::format("a multiple of linear_num_key_heads {}", net.key_heads));
  if (std::uint64_t{2} * net.key_heads * net.key_head_dim +
          std::uint64_t{net.value_heads} * net.value_head_dim >
      kMaxDim)
    return text.wrong("linear_num_value_heads",
                      fmt::format("small enough that all heads together are at most {} wide", kMaxDim));
  return net;
}

Result<GatedAttentionConfig> read_attention(const ObjectReader& text, Notes& notes) {
  GatedAttentionConfig attention{};
  MF_TRY(attention.query_heads, text.size("num_attention_heads", kMaxHeads));
  MF_TRY(attention.kv_heads, text.size("num_key_value_heads", kMaxHeads));
  MF_TRY(attention.head_dim, text.size("head_dim", kMaxHeads));
  if (attention.query_heads % attention.kv_heads != 0)
    return text.wrong("num_attention_heads",
                      fmt::format("a multiple of num_key_value_heads {}", attention.kv_heads));
  if (std::uint64_t{2} * attention.query_heads * attention.head_dim > kMaxDim)
    return text.wrong("num_attention_heads",
                      fmt::format("small enough that all heads together are at most {} wide", kMaxDim));

  MF_TRY(const RopeKeys rope, read_rope_keys(text, notes));
  if (rope.yarn)
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: rope type 'yarn' is not supported for qwen3_5_moe", text.where())};
  if (!rope.partial_rotary_factor) return text.missing("partial_rotary_factor");
  const auto dims = static_cast<std::uint32_t>(attention.head_dim * *rope.partial_rotary_factor);
  if (dims == 0 || dims % 2 != 0)
    return Error{
        ErrorCode::corrupt_data,
        fmt::format("{}: 'partial_rotary_factor' {:g} of head_dim {} gives {} rotary channels; expected an "
                    "even number",
                    text.where(), *rope.partial_rotary_factor, attention.head_dim, dims)};
  attention.rope = {.theta = rope.theta, .dims = dims, .pairing = RopePairing::half_split, .yarn = {}};
  return attention;
}

Result<MoeConfig> read_moe(const ObjectReader& text) {
  MoeConfig moe{};
  MF_TRY(moe.experts, text.size("num_experts", kMaxExperts));
  MF_TRY(moe.experts_per_token, text.size("num_experts_per_tok", moe.experts));
  MF_TRY(moe.hidden_dim, text.size("moe_intermediate_size", kMaxDim));
  moe.router = SoftmaxRouterConfig{};
  MF_TRY(const std::uint32_t shared, text.size("shared_expert_intermediate_size", kMaxDim, 0));
  if (shared > 0) moe.shared = SharedExpertConfig{.hidden_dim = shared, .gated = true};
  return moe;
}

// Multimodal releases have some keys both in `text_config` and beside it; the one in `text_config` wins.
const ObjectReader& holder_of(std::string_view key, const ObjectReader& text, const ObjectReader& top,
                              Notes& notes) {
  if (text.has(key) && top.has(key) && *text.value(key) != *top.value(key))
    notes.push_back(
        fmt::format("{}: '{}' differs from the one in text_config, which is used", top.where(), key));
  return text.has(key) ? text : top;
}

}  // namespace

Result<ModelConfig> parse_qwen3_5_moe_config(const ObjectReader& config, Notes& notes) {
  const bool nested = config.has("text_config");
  std::optional<ObjectReader> inner;
  if (nested) {
    MF_TRY(inner, config.object("text_config"));
  }
  const ObjectReader& text = nested ? *inner : config;
  MF_TRY_STATUS(refuse_variants(text));

  ModelConfig model{};
  model.family = Family::qwen3_5_moe;
  MF_TRY(model.dim, text.size("hidden_size", kMaxDim));
  MF_TRY(model.vocabulary, text.size("vocab_size", kMaxDim));
  MF_TRY(model.max_positions, text.size("max_position_embeddings", kMaxPositions));
  MF_TRY(model.norm_eps, text.number("rms_norm_eps", 1e-12, 1));
  const ObjectReader& tying = holder_of("tie_word_embeddings", text, config, notes);
  if (tying.has("tie_word_embeddings")) {
    MF_TRY(model.tied_embeddings, tying.boolean("tie_word_embeddings"));
  }
  MF_TRY(model.end_tokens, read_end_tokens(config, model.vocabulary));
  if (nested) {
    MF_TRY(const std::vector<TokenId> inner_tokens, read_end_tokens(text, model.vocabulary));
    append_new(model.end_tokens, inner_tokens);
  }

  MF_TRY(const std::uint32_t layers, text.size("num_hidden_layers", kMaxLayers));
  MF_TRY(const std::vector<bool> full, read_layer_kinds(text, layers, notes));
  MF_TRY(const GatedDeltaNetConfig delta_net, read_delta_net(text));
  MF_TRY(const GatedAttentionConfig attention, read_attention(text, notes));
  MF_TRY(const MoeConfig moe, read_moe(text));
  for (const bool is_full : full)
    model.layers.push_back({is_full ? MixerConfig(attention) : MixerConfig(delta_net), moe});

  text.ignore(std::array<std::string_view, 1>{"model_type"});
  if (nested) note_unknown_keys(text, notes);
  config.ignore(std::array<std::string_view, 2>{"quantization", "quantization_config"});
  note_unknown_keys(config, notes);
  return model;
}

}  // namespace moeflux
