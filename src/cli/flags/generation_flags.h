#pragma once
// How tokens are chosen and when a reply ends, on the command line. Plain values; pure functions.
//
// A flag overrides the model's generation_config.json, which overrides the built-in default.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "generation/generation.h"
#include "sampling/generation_config.h"
#include "sampling/options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace moeflux::cli {

struct SamplingFlags {
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<std::int64_t> top_k;  // 0 or less: all
  std::optional<std::int32_t> repeat_last_n;
  std::vector<std::string> logit_bias;  // "ID+BIAS", "ID-BIAS" or "ID-inf", as in llama.cpp
  std::string seed;                     // empty or negative: a different one each time
};

struct ReplyFlags {
  std::optional<std::int64_t> max_tokens;  // negative: no limit
  std::vector<std::string> stop;
  bool json_object = false;
  bool ignores_end = false;
};

// The names of the options in messages of check(): their flags.
extern const SamplingOptionNames kSamplingFlagNames;

void add_sampling_flags(CLI::App& command, SamplingFlags& sampling);
void add_reply_flags(CLI::App& command, ReplyFlags& reply);

Result<SamplingOptions> sampling_options_of(const SamplingFlags& flags, const SamplingDefaults& defaults);
Result<GenerationOptions> generation_options_of(const SamplingFlags& sampling, const ReplyFlags& reply,
                                                const SamplingDefaults& defaults);

// The seed, or nullopt for a different one each time.
Result<std::optional<std::uint64_t>> parse_seed(std::string_view text);

// "1234-inf", "15+2.5": a token and what is added to its logit.
Result<LogitBias> parse_logit_bias(std::string_view text);

}  // namespace moeflux::cli
