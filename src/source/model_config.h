#pragma once
// config.json → ModelConfig.
//
// Each family has one file (qwen3_5_moe_config.cpp, deepseek_v3_config.cpp) that reads every key it needs and
// refuses, by name, values that it cannot honour. A needed key that is missing is an error: nothing that
// shapes the model has a default. Where an old and a new spelling are both present the new one wins, with a
// note when they differ. Pure functions: any thread.

#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/object_reader.h"
#include "base/result.h"
#include "model/config.h"
#include "source/notes.h"

namespace moeflux {

// The family that `config` declares by its model_type; other families are `unsupported`, by name.
Result<Family> family_of(const ObjectReader& config);

// Dispatches on the family. `config` is the top level of a config.json.
Result<ModelConfig> parse_model_config(const ObjectReader& config, Notes& notes);

Result<ModelConfig> parse_qwen3_5_moe_config(const ObjectReader& config, Notes& notes);
Result<ModelConfig> parse_deepseek_v3_config(const ObjectReader& config, Notes& notes);

// What both families say about rotary embeddings: `rope_parameters`, or the older `rope_theta`,
// `partial_rotary_factor` and `rope_scaling`.
struct RopeKeys {
  double theta;
  std::optional<double> partial_rotary_factor;
  std::optional<YarnConfig> yarn;
};
Result<RopeKeys> read_rope_keys(const ObjectReader& config, Notes& notes);

// `eos_token_id`: absent, null, one id or an array of ids, each inside the vocabulary.
Result<std::vector<TokenId>> read_end_tokens(const ObjectReader& config, std::uint32_t vocabulary);

// Notes the keys of `config` that neither the reader of the family nor this list of known bystanders has
// named.
void note_unknown_keys(const ObjectReader& config, Notes& notes);

}  // namespace moeflux
