#include "pack/synthetic/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/printable.h"
#include "model/config.h"
#include "source/model_config.h"

namespace moeflux {
namespace {

constexpr std::string_view kQwen35B = R"({
  "architectures": ["Qwen3_5MoeForConditionalGeneration"],
  "model_type": "qwen3_5_moe",
  "text_config": {
    "attention_bias": false,
    "attention_dropout": 0.0,
    "attn_output_gate": true,
    "dtype": "bfloat16",
    "eos_token_id": [248046, 248044],
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144,
    "mlp_only_layers": [],
    "model_type": "qwen3_5_moe_text",
    "moe_intermediate_size": 512,
    "num_attention_heads": 16,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {
      "mrope_interleaved": true,
      "mrope_section": [11, 11, 10],
      "partial_rotary_factor": 0.25,
      "rope_theta": 10000000,
      "rope_type": "default"
    },
    "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": false,
    "use_cache": true,
    "vocab_size": 248320
  },
  "tie_word_embeddings": false
})";

// The differences from the smallest model.
constexpr std::string_view kQwen122B = R"({
  "text_config": {
    "hidden_size": 3072,
    "linear_num_value_heads": 64,
    "moe_intermediate_size": 1024,
    "num_attention_heads": 32,
    "shared_expert_intermediate_size": 1024
  }
})";
constexpr std::string_view kQwen397B = R"({
  "text_config": {
    "hidden_size": 4096,
    "linear_num_value_heads": 64,
    "moe_intermediate_size": 1024,
    "num_attention_heads": 32,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "shared_expert_intermediate_size": 1024
  }
})";

constexpr std::string_view kDeepseekV3 = R"({
  "architectures": ["DeepseekV3ForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 0,
  "eos_token_id": 1,
  "ep_size": 1,
  "first_k_dense_replace": 3,
  "hidden_act": "silu",
  "hidden_size": 7168,
  "initializer_range": 0.02,
  "intermediate_size": 18432,
  "kv_lora_rank": 512,
  "max_position_embeddings": 163840,
  "model_type": "deepseek_v3",
  "moe_intermediate_size": 2048,
  "moe_layer_freq": 1,
  "n_group": 8,
  "n_routed_experts": 256,
  "n_shared_experts": 1,
  "norm_topk_prob": true,
  "num_attention_heads": 128,
  "num_experts_per_tok": 8,
  "num_hidden_layers": 61,
  "num_key_value_heads": 128,
  "q_lora_rank": 1536,
  "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64,
  "rms_norm_eps": 1e-06,
  "rope_scaling": {
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 40,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "type": "yarn"
  },
  "rope_theta": 10000,
  "routed_scaling_factor": 2.5,
  "scoring_func": "sigmoid",
  "tie_word_embeddings": false,
  "topk_group": 4,
  "topk_method": "noaux_tc",
  "torch_dtype": "bfloat16",
  "use_cache": true,
  "v_head_dim": 128,
  "vocab_size": 129280
})";

// Cogito v2 is DeepSeek-V3 with other weights and fewer unused tokens.
constexpr std::string_view kCogitoV2 = R"({"vocab_size": 128815})";

struct BuiltinShape {
  std::string_view config;
  std::string_view changes;  // a merge patch; may be empty
  std::uint32_t layers;
};

constexpr std::array<std::string_view, 6> kNames{"qwen3.5-35b-a3b",   "qwen3.6-35b-a3b", "qwen3.5-122b-a10b",
                                                 "qwen3.5-397b-a17b", "deepseek-v3",     "cogito-v2-671b"};
constexpr std::array<BuiltinShape, kNames.size()> kShapes{
    BuiltinShape{kQwen35B, "", 40},        BuiltinShape{kQwen35B, "", 40},
    BuiltinShape{kQwen35B, kQwen122B, 48}, BuiltinShape{kQwen35B, kQwen397B, 60},
    BuiltinShape{kDeepseekV3, "", 61},     BuiltinShape{kDeepseekV3, kCogitoV2, 61}};

Result<ModelConfig> parsed(const Json& document, std::string_view what) {
  MF_TRY(const ObjectReader reader, ObjectReader::as_object(document, std::string(what)));
  Notes notes;
  return parse_model_config(reader, notes);
}

// The object that contains the shape: the whole config, or `text_config` of a multimodal one.
Json& shape_of(Json& document, const ModelConfig& model) {
  const auto text = document.find("text_config");
  const bool nested = model.family == Family::qwen3_5_moe && text != document.end() && text->is_object();
  return nested ? *text : document;
}

// The list of layer types, extended periodically or cut to `count`.
Json repeated(const Json& types, std::size_t count) {
  std::size_t period = 1;
  const auto repeats = [&] {
    for (std::size_t i = period; i < types.size(); ++i)
      if (types[i] != types[i - period]) return false;
    return true;
  };
  while (!repeats()) ++period;
  Json result = Json::array();
  for (std::size_t i = 0; i < count; ++i) result.push_back(types[i < types.size() ? i : i % period]);
  return result;
}

Status in_range(std::string_view what, std::uint32_t value, std::uint32_t minimum, std::uint32_t maximum) {
  if (value >= minimum && value <= maximum) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("expected {} to {} {} for this shape, found {}", minimum, maximum, what, value)};
}

Status set_layers(Json& shape, const ModelConfig& model, std::uint32_t layers) {
  MF_TRY_STATUS(in_range("layers", layers, 1, kMaxLayers));
  shape["num_hidden_layers"] = layers;
  if (model.family == Family::qwen3_5_moe) {
    if (const auto types = shape.find("layer_types"); types != shape.end() && !types->is_null())
      *types = repeated(*types, layers);
    return {};
  }
  const auto dense = std::count_if(model.layers.begin(), model.layers.end(), [](const LayerConfig& layer) {
    return std::holds_alternative<DenseMlpConfig>(layer.mlp);
  });
  shape["first_k_dense_replace"] = std::min<std::uint64_t>(static_cast<std::uint64_t>(dense), layers - 1);
  return {};
}

// Keeps the number of groups if it divides the experts into groups of two or more, else takes the next
// smaller one that does. Keeps the fraction of groups kept, or as many groups as the experts per token need.
void set_groups(Json& shape, const GroupedSigmoidRouterConfig& before, const MoeConfig& moe) {
  std::uint32_t groups = std::min(before.groups, moe.experts / 2);
  while (moe.experts % groups != 0) --groups;
  const std::uint32_t group_size = moe.experts / groups;
  std::uint32_t kept =
      std::max(1u, static_cast<std::uint32_t>(std::uint64_t{before.groups_kept} * groups / before.groups));
  while (kept < groups && kept * group_size < moe.experts_per_token) ++kept;
  shape["n_group"] = groups;
  shape["topk_group"] = kept;
  shape["num_experts_per_tok"] = std::min(moe.experts_per_token, kept * group_size);
}

Status set_experts(Json& shape, const ModelConfig& model, std::uint32_t experts) {
  const auto layer = std::find_if(model.layers.begin(), model.layers.end(), [](const LayerConfig& one) {
    return std::holds_alternative<MoeConfig>(one.mlp);
  });
  if (layer == model.layers.end())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--experts {}: no layer of this shape has experts", experts)};
  MoeConfig moe = std::get<MoeConfig>(layer->mlp);
  const auto* grouped = std::get_if<GroupedSigmoidRouterConfig>(&moe.router);
  MF_TRY_STATUS(in_range("experts", experts, grouped != nullptr ? 2 : 1, kMaxExperts));
  moe.experts = experts;
  moe.experts_per_token = std::min(moe.experts_per_token, experts);
  shape[grouped != nullptr ? "n_routed_experts" : "num_experts"] = experts;
  shape["num_experts_per_tok"] = moe.experts_per_token;
  if (grouped != nullptr) set_groups(shape, *grouped, moe);
  return {};
}

Result<Json> builtin_document(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  const BuiltinShape& builtin = kShapes[static_cast<std::size_t>(found - kNames.begin())];
  MF_TRY(Json document, parse_json(builtin.config, name));
  if (!builtin.changes.empty()) {
    MF_TRY(const Json changes, parse_json(builtin.changes, name));
    document.merge_patch(changes);
  }
  MF_TRY(const ModelConfig model, parsed(document, name));
  MF_TRY_STATUS(set_layers(shape_of(document, model), model, builtin.layers));
  return document;
}

Result<Json> document_at(FileSystem& files, const std::filesystem::path& path) {
  auto info = files.info(path);
  if (!info && info.error().code() != ErrorCode::not_found) return std::move(info).error();
  if (!info)
    return Error{ErrorCode::not_found,
                 fmt::format("{}: expected a path to a config.json or a known shape: {}",
                             printable(path.string()), fmt::join(kNames, ", "))};
  const std::filesystem::path file = info->kind == FileKind::directory ? path / "config.json" : path;
  MF_TRY(const std::string text, files.read_text(file, kMaxConfigBytes));
  return parse_json(text, file.string());
}

}  // namespace

std::span<const std::string_view> builtin_shapes() { return kNames; }

bool is_builtin_shape(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Result<std::string> shape_config(FileSystem& files, std::string_view name_or_path,
                                 const ShapeOverrides& overrides) {
  MF_TRY(Json document,
         is_builtin_shape(name_or_path) ? builtin_document(name_or_path) : document_at(files, name_or_path));
  MF_TRY(ModelConfig model, parsed(document, name_or_path));
  Json& shape = shape_of(document, model);
  if (overrides.layers) {
    MF_TRY_STATUS(set_layers(shape, model, *overrides.layers));
    MF_TRY(model, parsed(document, name_or_path));
  }
  if (overrides.experts) {
    MF_TRY_STATUS(set_experts(shape, model, *overrides.experts));
    MF_TRY(model, parsed(document, name_or_path));
  }
  return document.dump(2) + "\n";
}

}  // namespace moeflux
