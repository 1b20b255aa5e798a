#pragma once
// The sampling defaults of a model: generation_config.json.
//
// Only the sampling keys are read; all others are ignored. A key with a wrong type or range is an error that
// names it. Null means absent, as transformers writes it. Plain values.

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
  std::optional<std::uint32_t> top_k;  // 0: off, which vLLM writes as -1
  std::optional<bool> do_sample;       // false: greedy at any temperature
  std::vector<TokenId> end_tokens;     // eos_token_id: a number or an array
};

// `name` names the file in error messages.
Result<SamplingDefaults> parse_generation_config(std::string_view json, std::string_view name);

// Built-in defaults, overridden by what the file states.
SamplingOptions options_of(const SamplingDefaults& defaults);

}  // namespace moeflux
