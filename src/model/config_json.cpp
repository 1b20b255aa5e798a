#include "model/config_json.h"

#include <fmt/format.h>

#include "base/json/object_reader.h"
#include "base/overloaded.h"
#include "base/printable.h"

namespace moeflux {
namespace {

Error unknown_kind(const ObjectReader& reader, std::string_view kind) {
  return {ErrorCode::unsupported, fmt::format("{}: unknown kind '{}'", reader.where(), printable(kind))};
}

// All heads of a layer together must stay within kMaxDim.
Status check_width(const ObjectReader& reader, std::string_view key, std::uint64_t width) {
  if (width <= kMaxDim) return {};
  return reader.wrong(key, fmt::format("small enough that all heads together are at most {} wide", kMaxDim));
}

Json rope_to_json(const RopeConfig& rope) {
  Json json{
      {"theta", rope.theta}, {"dims", rope.dims}, {"interleaved", rope.pairing == RopePairing::interleaved}};
  if (rope.yarn)
    json["yarn"] = {{"factor", rope.yarn->factor},
                    {"beta_fast", rope.yarn->beta_fast},
                    {"beta_slow", rope.yarn->beta_slow},
                    {"mscale", rope.yarn->mscale},
                    {"mscale_all_dim", rope.yarn->mscale_all_dim},
                    {"original_positions", rope.yarn->original_positions}};
  return json;
}

Result<RopeConfig> rope_from_json(const ObjectReader& parent, std::uint32_t head_dim) {
  MF_TRY(const ObjectReader reader, parent.object("rope"));
  RopeConfig rope{};
  MF_TRY(rope.theta, reader.number("theta", 1, 1e12));
  MF_TRY(rope.dims, reader.size("dims", head_dim, 2));
  if (rope.dims % 2 != 0) return reader.wrong("dims", "an even number");
  MF_TRY(const bool interleaved, reader.boolean("interleaved"));
  rope.pairing = interleaved ? RopePairing::interleaved : RopePairing::half_split;
  if (!reader.has("yarn")) return rope;
  MF_TRY(const ObjectReader yarn, reader.object("yarn"));
  YarnConfig config{};
  MF_TRY(config.factor, yarn.number("factor", 1, 1e6));
  MF_TRY(config.beta_fast, yarn.number("beta_fast", 1e-6, 1e6));
  MF_TRY(config.beta_slow, yarn.number("beta_slow", 1e-6, 1e6));
  MF_TRY(config.mscale, yarn.number("mscale", 0, 1e6));
  MF_TRY(config.mscale_all_dim, yarn.number("mscale_all_dim", 0, 1e6));
  MF_TRY(config.original_positions, yarn.size("original_positions", kMaxPositions));
  rope.yarn = config;
  return rope;
}

Json mixer_to_json(const MixerConfig& mixer) {
  Json json{{"kind", name_of(mixer)}};
  std::visit(overloaded{[&](const GatedDeltaNetConfig& net) {
                          json["key_heads"] = net.key_heads;
                          json["value_heads"] = net.value_heads;
                          json["key_head_dim"] = net.key_head_dim;
                          json["value_head_dim"] = net.value_head_dim;
                          json["conv_width"] = net.conv_width;
                        },
                        [&](const GatedAttentionConfig& attention) {
                          json["query_heads"] = attention.query_heads;
                          json["kv_heads"] = attention.kv_heads;
                          json["head_dim"] = attention.head_dim;
                          json["rope"] = rope_to_json(attention.rope);
                        },
                        [&](const MlaConfig& mla) {
                          json["heads"] = mla.heads;
                          if (mla.query_latent_dim) json["query_latent_dim"] = *mla.query_latent_dim;
                          json["latent_dim"] = mla.latent_dim;
                          json["nope_dim"] = mla.nope_dim;
                          json["rope_dim"] = mla.rope_dim;
                          json["value_dim"] = mla.value_dim;
                          json["rope"] = rope_to_json(mla.rope);
                        }},
             mixer);
  return json;
}

Result<MixerConfig> delta_net_from_json(const ObjectReader& reader) {
  GatedDeltaNetConfig net{};
  MF_TRY(net.key_heads, reader.size("key_heads", kMaxHeads));
  MF_TRY(net.value_heads, reader.size("value_heads", kMaxHeads));
  MF_TRY(net.key_head_dim, reader.size("key_head_dim", kMaxHeads));
  MF_TRY(net.value_head_dim, reader.size("value_head_dim", kMaxHeads));
  MF_TRY(net.conv_width, reader.size("conv_width", 64));
  if (net.value_heads % net.key_heads != 0) return reader.wrong("value_heads", "a multiple of key_heads");
  MF_TRY_STATUS(check_width(reader, "value_heads",
                            std::uint64_t{2} * net.key_heads * net.key_head_dim +
                                std::uint64_t{net.value_heads} * net.value_head_dim));
  return MixerConfig(net);
}

Result<MixerConfig> gated_attention_from_json(const ObjectReader& reader) {
  GatedAttentionConfig attention{};
  MF_TRY(attention.query_heads, reader.size("query_heads", kMaxHeads));
  MF_TRY(attention.kv_heads, reader.size("kv_heads", kMaxHeads));
  MF_TRY(attention.head_dim, reader.size("head_dim", kMaxHeads));
  if (attention.query_heads % attention.kv_heads != 0)
    return reader.wrong("query_heads", "a multiple of kv_heads");
  MF_TRY_STATUS(
      check_width(reader, "query_heads", std::uint64_t{2} * attention.query_heads * attention.head_dim));
  MF_TRY(attention.rope, rope_from_json(reader, attention.head_dim));
  return MixerConfig(attention);
}

Result<MixerConfig> mla_from_json(const ObjectReader& reader) {
  MlaConfig mla{};
  MF_TRY(mla.heads, reader.size("heads", kMaxHeads));
  if (reader.has("query_latent_dim")) {
    MF_TRY(const std::uint32_t latent, reader.size("query_latent_dim", kMaxDim));
    mla.query_latent_dim = latent;
  }
  MF_TRY(mla.latent_dim, reader.size("latent_dim", kMaxDim / 2));
  MF_TRY(mla.nope_dim, reader.size("nope_dim", kMaxHeads));
  MF_TRY(mla.rope_dim, reader.size("rope_dim", kMaxHeads));
  MF_TRY(mla.value_dim, reader.size("value_dim", kMaxHeads));
  const std::uint64_t heads = mla.heads;
  MF_TRY_STATUS(check_width(reader, "heads", heads * (std::uint64_t{mla.nope_dim} + mla.rope_dim)));
  MF_TRY_STATUS(check_width(reader, "heads", heads * (std::uint64_t{mla.nope_dim} + mla.value_dim)));
  MF_TRY_STATUS(check_width(reader, "heads", heads * mla.latent_dim));
  MF_TRY(mla.rope, rope_from_json(reader, mla.rope_dim));
  if (mla.rope.dims != mla.rope_dim) return reader.wrong("rope_dim", "as wide as its rope");
  return MixerConfig(mla);
}

Result<MixerConfig> mixer_from_json(const ObjectReader& layer) {
  MF_TRY(const ObjectReader reader, layer.object("mixer"));
  MF_TRY(const std::string kind, reader.text("kind"));
  if (kind == "gated_delta_net") return delta_net_from_json(reader);
  if (kind == "gated_attention") return gated_attention_from_json(reader);
  if (kind == "mla") return mla_from_json(reader);
  return unknown_kind(reader, kind);
}

Json mlp_to_json(const MlpConfig& mlp) {
  return std::visit(
      overloaded{[](const DenseMlpConfig& dense) {
                   return Json{{"kind", "dense"}, {"hidden_dim", dense.hidden_dim}};
                 },
                 [](const MoeConfig& moe) {
                   Json json{{"kind", "moe"},
                             {"experts", moe.experts},
                             {"experts_per_token", moe.experts_per_token},
                             {"hidden_dim", moe.hidden_dim}};
                   if (const auto* grouped = std::get_if<GroupedSigmoidRouterConfig>(&moe.router))
                     json["router"] = {{"kind", "grouped_sigmoid"},
                                       {"groups", grouped->groups},
                                       {"groups_kept", grouped->groups_kept},
                                       {"normalise", grouped->normalise},
                                       {"scale", grouped->scale}};
                   else
                     json["router"] = {{"kind", "softmax"}};
                   if (moe.shared)
                     json["shared"] = {{"hidden_dim", moe.shared->hidden_dim}, {"gated", moe.shared->gated}};
                   return json;
                 }},
      mlp);
}

Result<RouterConfig> router_from_json(const ObjectReader& mlp, const MoeConfig& moe) {
  MF_TRY(const ObjectReader reader, mlp.object("router"));
  MF_TRY(const std::string kind, reader.text("kind"));
  if (kind == "softmax") return RouterConfig(SoftmaxRouterConfig{});
  if (kind != "grouped_sigmoid") return unknown_kind(reader, kind);
  GroupedSigmoidRouterConfig router{};
  MF_TRY(router.groups, reader.size("groups", moe.experts));
  if (moe.experts % router.groups != 0 || moe.experts / router.groups < 2)
    return reader.wrong("groups", "a divisor of the experts that leaves two or more in a group");
  MF_TRY(router.groups_kept, reader.size("groups_kept", router.groups));
  if (std::uint64_t{router.groups_kept} * (moe.experts / router.groups) < moe.experts_per_token)
    return reader.wrong("groups_kept", "enough groups for experts_per_token");
  MF_TRY(router.normalise, reader.boolean("normalise"));
  MF_TRY(router.scale, reader.number("scale", 1e-6, 1e6));
  return RouterConfig(router);
}

Result<MlpConfig> mlp_from_json(const ObjectReader& layer) {
  MF_TRY(const ObjectReader reader, layer.object("mlp"));
  MF_TRY(const std::string kind, reader.text("kind"));
  if (kind == "dense") {
    DenseMlpConfig dense{};
    MF_TRY(dense.hidden_dim, reader.size("hidden_dim", kMaxDim));
    return MlpConfig(dense);
  }
  if (kind != "moe") return unknown_kind(reader, kind);
  MoeConfig moe{};
  MF_TRY(moe.experts, reader.size("experts", kMaxExperts));
  MF_TRY(moe.experts_per_token, reader.size("experts_per_token", moe.experts));
  MF_TRY(moe.hidden_dim, reader.size("hidden_dim", kMaxDim));
  MF_TRY(moe.router, router_from_json(reader, moe));
  if (reader.has("shared")) {
    MF_TRY(const ObjectReader shared, reader.object("shared"));
    SharedExpertConfig expert{};
    MF_TRY(expert.hidden_dim, shared.size("hidden_dim", kMaxDim));
    MF_TRY(expert.gated, shared.boolean("gated"));
    moe.shared = expert;
  }
  return MlpConfig(moe);
}

}  // namespace

Json config_to_json(const ModelConfig& config) {
  Json end_tokens = Json::array();
  for (const TokenId token : config.end_tokens) end_tokens.push_back(token.index());
  Json layers = Json::array();
  for (const LayerConfig& layer : config.layers)
    layers.push_back({{"mixer", mixer_to_json(layer.mixer)}, {"mlp", mlp_to_json(layer.mlp)}});
  return {{"family", name_of(config.family)},    {"dim", config.dim},
          {"vocabulary", config.vocabulary},     {"max_positions", config.max_positions},
          {"norm_eps", config.norm_eps},         {"tied_embeddings", config.tied_embeddings},
          {"end_tokens", std::move(end_tokens)}, {"layers", std::move(layers)}};
}

Result<ModelConfig> config_from_json(const Json& value, std::string where) {
  MF_TRY(const ObjectReader reader, ObjectReader::as_object(value, std::move(where)));
  ModelConfig config{};
  MF_TRY(const std::string family, reader.text("family"));
  if (family == name_of(Family::qwen3_5_moe))
    config.family = Family::qwen3_5_moe;
  else if (family == name_of(Family::deepseek_v3))
    config.family = Family::deepseek_v3;
  else
    return unknown_kind(reader, family);
  MF_TRY(config.dim, reader.size("dim", kMaxDim));
  MF_TRY(config.vocabulary, reader.size("vocabulary", kMaxDim));
  MF_TRY(config.max_positions, reader.size("max_positions", kMaxPositions));
  MF_TRY(config.norm_eps, reader.number("norm_eps", 1e-12, 1));
  MF_TRY(config.tied_embeddings, reader.boolean("tied_embeddings"));

  const Json* end_tokens = reader.value("end_tokens");
  if (end_tokens == nullptr) return reader.missing("end_tokens");
  if (!end_tokens->is_array()) return reader.wrong("end_tokens", "an array");
  for (const Json& token : *end_tokens) {
    if (!token.is_number_unsigned() || token.get<std::uint64_t>() >= config.vocabulary)
      return reader.wrong("end_tokens", "ids below vocabulary");
    config.end_tokens.emplace_back(token.get<std::uint32_t>());
  }
  const Json* layers = reader.value("layers");
  if (layers == nullptr) return reader.missing("layers");
  if (!layers->is_array() || layers->empty() || layers->size() > kMaxLayers)
    return reader.wrong("layers", fmt::format("an array of 1 to {} layers", kMaxLayers));
  for (std::size_t i = 0; i < layers->size(); ++i) {
    MF_TRY(const ObjectReader layer,
           ObjectReader::as_object((*layers)[i], fmt::format("{}: layer {}", reader.where(), i)));
    MF_TRY(const MixerConfig mixer, mixer_from_json(layer));
    if (std::holds_alternative<MlaConfig>(mixer) != (config.family == Family::deepseek_v3))
      return layer.wrong("mixer", fmt::format("one of the family {}", name_of(config.family)));
    MF_TRY(const MlpConfig mlp, mlp_from_json(layer));
    config.layers.push_back({mixer, mlp});
  }
  return config;
}

}  // namespace moeflux
