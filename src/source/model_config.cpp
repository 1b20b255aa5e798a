#include "source/model_config.h"

#include <fmt/format.h>

#include <array>

#include "base/printable.h"

namespace moeflux {
namespace {

constexpr double kMaxTheta = 1e12;

// One quantity under its new and its old key. The new key wins.
Result<std::optional<double>> new_or_old(const ObjectReader* newer, const ObjectReader& older,
                                         std::string_view key, double minimum, double maximum, Notes& notes) {
  const bool has_new = newer != nullptr && newer->has(key);
  if (!has_new && !older.has(key)) return std::optional<double>{};
  if (!has_new) {
    MF_TRY(const double value, older.number(key, minimum, maximum));
    return std::optional(value);
  }
  MF_TRY(const double value, newer->number(key, minimum, maximum));
  if (older.has(key)) {
    MF_TRY(const double old_value, older.number(key, minimum, maximum));
    if (old_value != value)
      notes.push_back(fmt::format("{}: '{}' is {:g} in rope_parameters and {:g} beside it; {:g} is used",
                                  older.where(), key, value, old_value, value));
  }
  return std::optional(value);
}

Result<std::optional<YarnConfig>> read_yarn(const ObjectReader& scaling, Notes& notes) {
  const bool has_new_name = scaling.has("rope_type");
  if (!has_new_name && !scaling.has("type")) return scaling.missing("rope_type");
  if (has_new_name && scaling.has("type") && *scaling.value("rope_type") != *scaling.value("type"))
    notes.push_back(fmt::format("{}: 'rope_type' and 'type' differ; 'rope_type' is used", scaling.where()));
  MF_TRY(const std::string type, scaling.text(has_new_name ? "rope_type" : "type"));
  if (type == "default") return std::optional<YarnConfig>{};
  if (type != "yarn")
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: rope type '{}' is not supported; 'default' and 'yarn' are", scaling.where(),
                             printable(type))};
  MF_TRY_STATUS(scaling.only("truncate", true));
  MF_TRY_STATUS(scaling.only("attention_factor", nullptr));
  YarnConfig yarn{};
  MF_TRY(yarn.factor, scaling.number("factor", 1, 1e6));
  MF_TRY(yarn.beta_fast, scaling.number("beta_fast", 1e-6, 1e6));
  MF_TRY(yarn.beta_slow, scaling.number("beta_slow", 1e-6, 1e6));
  MF_TRY(yarn.mscale, scaling.number("mscale", 0, 1e6));
  MF_TRY(yarn.mscale_all_dim, scaling.number("mscale_all_dim", 0, 1e6));
  MF_TRY(yarn.original_positions, scaling.size("original_max_position_embeddings", kMaxPositions));
  return std::optional(yarn);
}

// Keys of published configs that do not affect the forward pass.
constexpr std::array<std::string_view, 65> kBystanders{"_name_or_path",
                                                       "_attn_implementation",
                                                       "_attn_implementation_autoset",
                                                       "add_cross_attention",
                                                       "architectures",
                                                       "attention_dropout",
                                                       "auto_map",
                                                       "aux_loss_alpha",
                                                       "bad_words_ids",
                                                       "begin_suppress_tokens",
                                                       "bos_token_id",
                                                       "chunk_size_feed_forward",
                                                       "cross_attention_hidden_size",
                                                       "decoder_start_token_id",
                                                       "diversity_penalty",
                                                       "do_sample",
                                                       "dtype",
                                                       "early_stopping",
                                                       "ep_size",
                                                       "exponential_decay_length_penalty",
                                                       "finetuning_task",
                                                       "forced_bos_token_id",
                                                       "forced_eos_token_id",
                                                       "head_dim",
                                                       "id2label",
                                                       "image_token_id",
                                                       "initializer_range",
                                                       "is_decoder",
                                                       "is_encoder_decoder",
                                                       "label2id",
                                                       "language_model_only",
                                                       "length_penalty",
                                                       "mamba_ssm_dtype",
                                                       "max_window_layers",
                                                       "mtp_num_hidden_layers",
                                                       "mtp_use_dedicated_embeddings",
                                                       "num_key_value_heads",
                                                       "num_nextn_predict_layers",
                                                       "output_attentions",
                                                       "output_hidden_states",
                                                       "output_router_logits",
                                                       "pad_token_id",
                                                       "prefix",
                                                       "pretraining_tp",
                                                       "problem_type",
                                                       "pruned_heads",
                                                       "qk_head_dim",
                                                       "return_dict",
                                                       "router_aux_loss_coef",
                                                       "router_jitter_noise",
                                                       "sep_token_id",
                                                       "seq_aux",
                                                       "task_specific_params",
                                                       "temperature",
                                                       "tie_encoder_decoder",
                                                       "tokenizer_class",
                                                       "top_k",
                                                       "top_p",
                                                       "torch_dtype",
                                                       "transformers_version",
                                                       "use_cache",
                                                       "video_token_id",
                                                       "vision_config",
                                                       "vision_end_token_id",
                                                       "vision_start_token_id"};

}  // namespace

Result<Family> family_of(const ObjectReader& config) {
  MF_TRY(const std::string type, config.text("model_type"));
  if (type == "qwen3_5_moe" || type == "qwen3_5_moe_text") return Family::qwen3_5_moe;
  if (type == "deepseek_v3") return Family::deepseek_v3;
  return Error{ErrorCode::unsupported,
               fmt::format("{}: model_type '{}' is not supported; qwen3_5_moe and deepseek_v3 are",
                           config.where(), printable(type))};
}

Result<ModelConfig> parse_model_config(const ObjectReader& config, Notes& notes) {
  MF_TRY(const Family family, family_of(config));
  switch (family) {
    case Family::qwen3_5_moe: return parse_qwen3_5_moe_config(config, notes);
    case Family::deepseek_v3: return parse_deepseek_v3_config(config, notes);
  }
  return Error{ErrorCode::unsupported, "a family without a reader"};
}

Result<RopeKeys> read_rope_keys(const ObjectReader& config, Notes& notes) {
  std::optional<ObjectReader> newer;
  if (config.has("rope_parameters")) {
    MF_TRY(newer, config.object("rope_parameters"));
  }
  const ObjectReader* parameters = newer ? &*newer : nullptr;

  RopeKeys keys{};
  MF_TRY(const std::optional<double> theta,
         new_or_old(parameters, config, "rope_theta", 1, kMaxTheta, notes));
  if (!theta) return config.missing("rope_theta");
  keys.theta = *theta;
  MF_TRY(keys.partial_rotary_factor, new_or_old(parameters, config, "partial_rotary_factor", 0, 1, notes));

  std::optional<YarnConfig> old_yarn;
  if (config.has("rope_scaling")) {
    MF_TRY(const ObjectReader scaling, config.object("rope_scaling"));
    MF_TRY(old_yarn, read_yarn(scaling, notes));
  }
  if (parameters == nullptr) {
    keys.yarn = old_yarn;
    return keys;
  }
  MF_TRY(keys.yarn, read_yarn(*parameters, notes));
  if (config.has("rope_scaling") && old_yarn != keys.yarn)
    notes.push_back(fmt::format("{}: 'rope_parameters' and 'rope_scaling' differ; 'rope_parameters' is used",
                                config.where()));
  return keys;
}

Result<std::vector<TokenId>> read_end_tokens(const ObjectReader& config, std::uint32_t vocabulary) {
  std::vector<TokenId> tokens;
  if (!config.has("eos_token_id")) return tokens;
  const Json& value = *config.value("eos_token_id");
  const auto add = [&](const Json& id) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= vocabulary) return false;
    tokens.emplace_back(id.get<std::uint32_t>());
    return true;
  };
  bool fits = true;
  if (value.is_array()) {
    fits = value.size() <= 64;
    for (std::size_t i = 0; fits && i < value.size(); ++i) fits = add(value[i]);
  } else {
    fits = add(value);
  }
  if (!fits) return config.wrong("eos_token_id", fmt::format("token ids below vocab_size {}", vocabulary));
  return tokens;
}

void note_unknown_keys(const ObjectReader& config, Notes& notes) {
  config.ignore(kBystanders);
  const std::vector<std::string> unknown = config.unknown_keys();
  if (unknown.empty()) return;
  constexpr std::size_t kShown = 8;
  const std::vector<std::string> first(
      unknown.begin(), unknown.begin() + static_cast<std::ptrdiff_t>(std::min(unknown.size(), kShown)));
  notes.push_back(
      fmt::format("{}: unknown keys ignored: {}{}", config.where(), fmt::join(first, ", "),
                  unknown.size() > kShown ? fmt::format(" and {} more", unknown.size() - kShown) : ""));
}

}  // namespace moeflux
