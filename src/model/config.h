#pragma once
// The shape of a model, layer by layer.
//
// Every ModelConfig can run: it is parsed once, strictly. Every field has the same meaning in all families.
// The parts of a layer are variants, so adding a case breaks the build at every place that must handle it.
// Derived sizes are functions, not fields. Plain values.
//
// Sizes are std::uint32_t and bounded by the kMax constants below, so the product of two fits in 64 bits.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "quant/rope_pairing.h"

namespace moeflux {

inline constexpr std::uint32_t kMaxLayers = 1024;
inline constexpr std::uint32_t kMaxExperts = 65536;  // per layer
inline constexpr std::uint32_t kMaxHeads = 65536;    // per layer; also the width of one head
// Any width: the residual stream, all heads of a layer together, the vocabulary.
inline constexpr std::uint32_t kMaxDim = 1u << 22;
inline constexpr std::uint32_t kMaxPositions = 1u << 30;

enum class Family { qwen3_5_moe, deepseek_v3 };
std::string_view name_of(Family family);

// YaRN scaling of the rotary frequencies, as in DeepSeek-V3.
struct YarnConfig {
  double factor;
  double beta_fast, beta_slow;
  double mscale, mscale_all_dim;
  std::uint32_t original_positions;
  friend bool operator==(const YarnConfig&, const YarnConfig&) = default;
};

struct RopeConfig {
  double theta;
  std::uint32_t dims;  // the first `dims` channels of a head rotate; even
  RopePairing pairing;
  std::optional<YarnConfig> yarn;
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Linear attention. Its recurrent state holds key_head_dim x value_head_dim numbers per value head;
// quant/delta_state.h defines their order in memory.
struct GatedDeltaNetConfig {
  std::uint32_t key_heads, value_heads;  // value_heads is a multiple of key_heads
  std::uint32_t key_head_dim, value_head_dim;
  std::uint32_t conv_width;
  std::uint32_t key_dim() const { return key_heads * key_head_dim; }
  std::uint32_t value_dim() const { return value_heads * value_head_dim; }
  std::uint32_t conv_dim() const { return 2 * key_dim() + value_dim(); }  // q, k and v concatenated
  friend bool operator==(const GatedDeltaNetConfig&, const GatedDeltaNetConfig&) = default;
};

// Softmax attention with normalized queries and keys and a sigmoid gate on its output.
struct GatedAttentionConfig {
  std::uint32_t query_heads, kv_heads;  // query_heads is a multiple of kv_heads
  std::uint32_t head_dim;
  RopeConfig rope;
  std::uint32_t query_dim() const { return query_heads * head_dim; }
  std::uint32_t kv_dim() const { return kv_heads * head_dim; }
  friend bool operator==(const GatedAttentionConfig&, const GatedAttentionConfig&) = default;
};

// Multi-head latent attention: softmax attention over one compressed latent per position, shared by all
// heads.
struct MlaConfig {
  std::uint32_t heads;
  std::optional<std::uint32_t> query_latent_dim;  // absent: queries are projected in a single step
  std::uint32_t latent_dim;
  std::uint32_t nope_dim, rope_dim;  // of a query or key head: channels without and with rotary position
  std::uint32_t value_dim;           // of a value head
  RopeConfig rope;
  std::uint32_t query_dim() const { return heads * (nope_dim + rope_dim); }
  friend bool operator==(const MlaConfig&, const MlaConfig&) = default;
};

using MixerConfig = std::variant<GatedDeltaNetConfig, GatedAttentionConfig, MlaConfig>;

// Softmax over all experts; the weights of the chosen top K are renormalized to 1.
struct SoftmaxRouterConfig {
  friend bool operator==(const SoftmaxRouterConfig&, const SoftmaxRouterConfig&) = default;
};

// DeepSeek's noaux_tc: sigmoid scores. A correction bias and groups affect which experts are chosen, not
// their weights.
struct GroupedSigmoidRouterConfig {
  std::uint32_t groups, groups_kept;
  bool normalise;  // the chosen weights are normalized to 1 before `scale`
  double scale;
  friend bool operator==(const GroupedSigmoidRouterConfig&, const GroupedSigmoidRouterConfig&) = default;
};

using RouterConfig = std::variant<SoftmaxRouterConfig, GroupedSigmoidRouterConfig>;

// An expert that runs for every token.
struct SharedExpertConfig {
  std::uint32_t hidden_dim;
  bool gated;  // its output is multiplied by the sigmoid of another projection
  friend bool operator==(const SharedExpertConfig&, const SharedExpertConfig&) = default;
};

struct MoeConfig {
  std::uint32_t experts, experts_per_token;
  std::uint32_t hidden_dim;  // of one routed expert
  RouterConfig router;
  std::optional<SharedExpertConfig> shared;
  friend bool operator==(const MoeConfig&, const MoeConfig&) = default;
};

struct DenseMlpConfig {
  std::uint32_t hidden_dim;
  friend bool operator==(const DenseMlpConfig&, const DenseMlpConfig&) = default;
};

using MlpConfig = std::variant<MoeConfig, DenseMlpConfig>;

struct LayerConfig {
  MixerConfig mixer;
  MlpConfig mlp;
  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

struct ModelConfig {
  Family family;
  std::uint32_t dim;  // of the residual stream
  std::uint32_t vocabulary;
  std::uint32_t max_positions;  // the context length the model was trained for
  double norm_eps;
  bool tied_embeddings;             // the output head reuses the embedding matrix
  std::vector<TokenId> end_tokens;  // any of these ends a text; may be empty
  std::vector<LayerConfig> layers;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// "gated_delta_net", "gated_attention", "mla".
std::string_view name_of(const MixerConfig& mixer);

}  // namespace moeflux
