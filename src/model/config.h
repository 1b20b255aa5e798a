#pragma once
// What a model is: its shape, layer by layer.
//
// A ModelConfig that exists is one that can run: it is parsed once, strictly, and no field means one thing
// for one family and another for the next. What a layer does is a variant; adding a case breaks the build
// at every place that must think about it. Derived sizes are functions, not fields. Immutable values: any
// thread.
//
// Sizes are std::uint32_t and bounded by kMaxDim and its siblings, so products of two fit in 64 bits.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"

namespace moeflux {

inline constexpr std::uint32_t kMaxLayers = 1024;
inline constexpr std::uint32_t kMaxExperts = 65536;  // of one layer
inline constexpr std::uint32_t kMaxDim = 1u << 22;   // any width, heads times head size, vocabulary
inline constexpr std::uint32_t kMaxPositions = 1u << 30;

enum class Family { qwen3_5_moe, deepseek_v3 };
std::string_view name_of(Family family);

// YaRN's stretched rotary frequencies, as DeepSeek-V3 uses them.
struct YarnConfig {
  double factor;
  double beta_fast, beta_slow;
  double mscale, mscale_all_dim;
  std::uint32_t original_positions;
  friend bool operator==(const YarnConfig&, const YarnConfig&) = default;
};

enum class RopePairing {
  half_split,   // channel i turns with channel i + dims/2
  interleaved,  // channel 2i turns with channel 2i + 1
};

struct RopeConfig {
  double theta;
  std::uint32_t dims;  // the first `dims` channels of a head turn; even
  RopePairing pairing;
  std::optional<YarnConfig> yarn;
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Linear attention with a recurrent state of [value_heads][value_head_dim][key_head_dim].
struct GatedDeltaNetConfig {
  std::uint32_t key_heads, value_heads;  // value_heads is a multiple of key_heads
  std::uint32_t key_head_dim, value_head_dim;
  std::uint32_t conv_width;
  std::uint32_t key_dim() const { return key_heads * key_head_dim; }
  std::uint32_t value_dim() const { return value_heads * value_head_dim; }
  std::uint32_t conv_dim() const { return 2 * key_dim() + value_dim(); }  // q, k and v, side by side
  friend bool operator==(const GatedDeltaNetConfig&, const GatedDeltaNetConfig&) = default;
};

// Softmax attention with normalised queries and keys and a sigmoid gate on its output.
struct GatedAttentionConfig {
  std::uint32_t query_heads, kv_heads;  // query_heads is a multiple of kv_heads
  std::uint32_t head_dim;
  RopeConfig rope;
  std::uint32_t query_dim() const { return query_heads * head_dim; }
  std::uint32_t kv_dim() const { return kv_heads * head_dim; }
  friend bool operator==(const GatedAttentionConfig&, const GatedAttentionConfig&) = default;
};

// Softmax attention over a compressed latent that all heads share.
struct MlaConfig {
  std::uint32_t heads;
  std::optional<std::uint32_t> query_latent_dim;  // absent: queries are projected in one step
  std::uint32_t latent_dim;
  std::uint32_t nope_dim, rope_dim;  // of a query or key head: the part without position, the part with
  std::uint32_t value_dim;           // of a value head
  RopeConfig rope;
  std::uint32_t query_dim() const { return heads * (nope_dim + rope_dim); }
  friend bool operator==(const MlaConfig&, const MlaConfig&) = default;
};

using MixerConfig = std::variant<GatedDeltaNetConfig, GatedAttentionConfig, MlaConfig>;

// Softmax over all experts, the largest few, renormalised to 1.
struct SoftmaxRouterConfig {
  friend bool operator==(const SoftmaxRouterConfig&, const SoftmaxRouterConfig&) = default;
};

// DeepSeek's noaux_tc: sigmoid scores; a correction bias and groups decide the choice, not the weights.
struct GroupedSigmoidRouterConfig {
  std::uint32_t groups, groups_kept;
  bool normalise;  // the chosen weights sum to 1 before `scale`
  double scale;
  friend bool operator==(const GroupedSigmoidRouterConfig&, const GroupedSigmoidRouterConfig&) = default;
};

using RouterConfig = std::variant<SoftmaxRouterConfig, GroupedSigmoidRouterConfig>;

// An expert that every token visits.
struct SharedExpertConfig {
  std::uint32_t hidden_dim;
  bool gated;  // its output is multiplied by a sigmoid of one more projection
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
  std::uint32_t max_positions;  // the context that the model was trained for
  double norm_eps;
  bool tied_embeddings;             // the output head is the embedding matrix
  std::vector<TokenId> end_tokens;  // any of these ends a text; may be empty
  std::vector<LayerConfig> layers;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// "gated_delta_net", "gated_attention", "mla".
std::string_view name_of(const MixerConfig& mixer);

}  // namespace moeflux
