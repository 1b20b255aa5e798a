#pragma once
// What `run`, `chat` and `perplexity` take in common, as typed, and what becomes of it. Plain values; pure functions.
//
// Where a flag is silent the model's generation_config.json speaks, and where that is silent too the built-in default.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "cli/model_choice.h"
#include "engine/options.h"
#include "generation/generation.h"
#include "model/config.h"
#include "sampling/generation_config.h"
#include "sampling/options.h"

namespace moeflux::cli {

struct StreamingFlags {
  std::string expert_cache;  // a SIZE; empty: what the memory plan leaves
  std::string io;            // "uring", "pread", "buffered", "sim:3G,100us"; empty: by what the machine has
  std::string prefetch;      // "previous" or "off"; empty: previous
  bool verify_reads = false;
  std::string trace;  // a file; empty: none
};

struct EngineFlags {
  std::string precision;  // "exact" or "fast"; empty: the default
  std::string kv;         // "f32", "bf16" or "int8"; empty: the default
  std::string isa;
  unsigned threads = 0;
  std::uint32_t context = 0;    // 0: 8192, or the model's own if that is less
  std::uint32_t step_rows = 0;  // 0: 512
  std::uint32_t top_experts = 0;
  StreamingFlags streaming;
};

struct SamplingFlags {
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<std::int64_t> top_k;  // 0 or less: all
  std::optional<std::int32_t> repeat_last_n;
  std::vector<std::string> logit_bias;  // "ID+BIAS", "ID-BIAS", or "ID-inf": as llama.cpp has it
  std::string seed;                     // empty or negative: another one each time
};

struct ReplyFlags {
  std::optional<std::int64_t> max_tokens;  // negative: no limit
  std::vector<std::string> stop;
  bool json_object = false;
  bool ignores_end = false;
};

Result<Precision> parse_precision(std::string_view name);
Result<KvNumbers> parse_kv_numbers(std::string_view name);

// All but the trace.
Status take_streaming(const StreamingFlags& flags, EngineOptions& options);

// Numbers that are too large for an engine are left for it to refuse.
Result<EngineOptions> engine_options_of(const EngineFlags& flags);

// Whether --top-experts runs fewer experts than the model has; says so loudly if it does.
bool warn_of_top_experts(std::uint32_t top_experts, const ModelConfig& config, LogSink& log);

Result<SamplingOptions> sampling_options_of(const SamplingFlags& flags, const SamplingDefaults& defaults);
Result<GenerationOptions> generation_options_of(const SamplingFlags& sampling, const ReplyFlags& reply,
                                                const SamplingDefaults& defaults);

// Nothing: another one each time.
Result<std::optional<std::uint64_t>> parse_seed(std::string_view text);

// "1234-inf", "15+2.5": a token and what is added to its logit.
Result<LogitBias> parse_logit_bias(std::string_view text);

}  // namespace moeflux::cli
