#pragma once
// config.json → ModelConfig.
//
// Each family has one file (source/families/qwen3_5_moe_config.cpp, deepseek_v3_config.cpp) that reads every
// key it needs and rejects unsupported values by name. A missing key is an error: nothing that shapes the
// model has a default. If a key is present in an old and a new spelling, the new one wins, with a note if
// they differ. Pure functions: any thread.

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/json/json.h"
#include "base/json/object_reader.h"
#include "base/result.h"
#include "base/sizes.h"
#include "model/config.h"
#include "source/notes.h"

namespace moeflux {

// Of a config.json, or of the original's model_weights.json.
inline constexpr std::uint64_t kMaxConfigBytes = 4 * kMiB;

// The family of `config` by its model_type. Other families are `unsupported`; the message names them.
Result<Family> family_of(const ObjectReader& config);

// Dispatches on the family. `config` is the top level of a config.json.
Result<ModelConfig> parse_model_config(const ObjectReader& config, Notes& notes);

Result<ModelConfig> parse_qwen3_5_moe_config(const ObjectReader& config, Notes& notes);
Result<ModelConfig> parse_deepseek_v3_config(const ObjectReader& config, Notes& notes);

// The keys for rotary embeddings, common to both families: `rope_parameters`, or the older `rope_theta`,
// `partial_rotary_factor` and `rope_scaling`.
struct RopeKeys {
  double theta;
  std::optional<double> partial_rotary_factor;
  std::optional<YarnConfig> yarn;
};
Result<RopeKeys> read_rope_keys(const ObjectReader& config, Notes& notes);

// `eos_token_id`: absent, null, one id or an array of ids, each inside the vocabulary.
Result<std::vector<TokenId>> read_end_tokens(const ObjectReader& config, std::uint32_t vocabulary);

// Adds a note about the keys of `config` that the family's reader did not look at and that are not on a list
// of keys known to be harmless.
void note_unknown_keys(const ObjectReader& config, Notes& notes);

}  // namespace moeflux
