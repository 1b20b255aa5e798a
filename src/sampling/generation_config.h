#pragma once
// A model's own wishes: generation_config.json.
//
// Only what concerns sampling is read; keys that are not known are left alone, known ones of a wrong type
// or range are errors that name them. Null is the same as absent, as transformers writes it. Plain values.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "sampling/options.h"

namespace moeflux {

struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::uint32_t> top_k;  // -1, vLLM's word for "off", is 0 here
  std::optional<bool> do_sample;       // false: greedy, whatever the temperature
  std::vector<TokenId> end_tokens;     // eos_token_id, a number or several
};

// `name` is how messages call the file.
Result<SamplingDefaults> parse_generation_config(std::string_view json, std::string_view name);

// Options with what the model wishes, and the built-in default where it is silent.
SamplingOptions options_of(const SamplingDefaults& defaults);

}  // namespace moeflux
