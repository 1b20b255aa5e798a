#include "cli/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/printable.h"
#include "base/sizes.h"

namespace moeflux::cli {
namespace {

// Of the layers that have experts; 0: none has.
std::uint32_t own_experts_per_token(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers)
    if (const auto* moe = std::get_if<MoeConfig>(&layer.mlp)) return moe->experts_per_token;
  return 0;
}

}  // namespace

Result<Precision> parse_precision(std::string_view name) {
  for (const Precision precision : {Precision::exact, Precision::fast})
    if (name == name_of(precision)) return precision;
  return Error{ErrorCode::invalid_argument,
               fmt::format("--precision must be exact or fast, found '{}'", printable(name))};
}

Result<KvNumbers> parse_kv_numbers(std::string_view name) {
  for (const KvNumbers numbers : {KvNumbers::f32, KvNumbers::bf16, KvNumbers::int8})
    if (name == name_of(numbers)) return numbers;
  return Error{ErrorCode::invalid_argument,
               fmt::format("--kv must be f32, bf16 or int8, found '{}'", printable(name))};
}

Status take_streaming(const StreamingFlags& flags, EngineOptions& options) {
  if (!flags.expert_cache.empty()) {
    Result<std::uint64_t> bytes = parse_size(flags.expert_cache);
    if (!bytes) return std::move(bytes).error().during("--expert-cache");
    if (*bytes == 0)
      return Error{ErrorCode::invalid_argument, "--expert-cache must have room for an expert, found 0"};
    options.expert_cache_bytes = *bytes;
  }
  if (!flags.io.empty()) {
    Result<DriveChoice> drive = parse_drive_choice(flags.io);
    if (!drive) return std::move(drive).error().during("--io");
    options.drive = *drive;
  }
  if (!flags.prefetch.empty() && flags.prefetch != "previous" && flags.prefetch != "off")
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--prefetch must be previous or off, found '{}'", printable(flags.prefetch))};
  options.prefetches = flags.prefetch != "off";
  options.verifies_reads = flags.verify_reads;
  return {};
}

Result<EngineOptions> engine_options_of(const EngineFlags& flags) {
  EngineOptions options;
  if (!flags.precision.empty()) {
    MF_TRY(options.precision, parse_precision(flags.precision));
  }
  if (!flags.kv.empty()) {
    MF_TRY(options.kv_numbers, parse_kv_numbers(flags.kv));
  }
  MF_TRY_STATUS(select_kernels(flags.isa));
  options.isa = flags.isa;
  options.threads = flags.threads;
  options.context = flags.context;
  if (flags.step_rows != 0) options.step_rows = flags.step_rows;
  options.experts_per_token = flags.top_experts;
  MF_TRY_STATUS(take_streaming(flags.streaming, options));
  return options;
}

bool warn_of_top_experts(std::uint32_t top_experts, const ModelConfig& config, LogSink& log) {
  const std::uint32_t own = own_experts_per_token(config);
  if (top_experts == 0 || top_experts >= own) return false;
  log.write(LogLevel::warning,
            fmt::format("running with {} of {} experts a token: this is not the model's own arithmetic",
                        top_experts, own));
  return true;
}

Result<LogitBias> parse_logit_bias(std::string_view text) {
  const auto wrong = [&] {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("--logit-bias takes TOKEN+BIAS or TOKEN-BIAS, as in 15043-inf or 15043+1.5; found '{}'",
                    printable(text))};
  };
  std::uint32_t token = 0;
  const char* const end = text.data() + text.size();
  const auto id = std::from_chars(text.data(), end, token);
  if (id.ec != std::errc() || id.ptr == end || (*id.ptr != '+' && *id.ptr != '-')) return wrong();
  const bool is_negative = *id.ptr == '-';
  float bias = 0;
  const auto number = std::from_chars(id.ptr + 1, end, bias);
  if (number.ec != std::errc() || number.ptr != end || std::isnan(bias) || std::signbit(bias)) return wrong();
  return LogitBias{TokenId(token), is_negative ? -bias : bias};
}

Result<std::optional<std::uint64_t>> parse_seed(std::string_view text) {
  if (text.empty()) return std::optional<std::uint64_t>();
  const bool is_negative = text.front() == '-';
  std::uint64_t seed = 0;
  const auto [rest, error] =
      std::from_chars(text.data() + (is_negative ? 1 : 0), text.data() + text.size(), seed);
  if (error != std::errc() || rest != text.data() + text.size())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--seed takes a whole number below 2^64, found '{}'", printable(text))};
  return is_negative ? std::optional<std::uint64_t>() : std::optional(seed);
}

Result<SamplingOptions> sampling_options_of(const SamplingFlags& flags, const SamplingDefaults& defaults) {
  SamplingOptions options = options_of(defaults);
  const auto take = [](auto& option, const auto& flag) {
    if (flag) option = *flag;
  };
  take(options.temperature, flags.temperature);
  take(options.top_p, flags.top_p);
  take(options.min_p, flags.min_p);
  take(options.repetition_penalty, flags.repetition_penalty);
  take(options.presence_penalty, flags.presence_penalty);
  take(options.frequency_penalty, flags.frequency_penalty);
  if (flags.top_k)
    options.top_k =
        static_cast<std::uint32_t>(std::clamp<std::int64_t>(*flags.top_k, 0, GenerationOptions::kNoLimit));
  take(options.repeat_last_n, flags.repeat_last_n);
  for (const std::string& text : flags.logit_bias) {
    MF_TRY(const LogitBias bias, parse_logit_bias(text));
    options.logit_bias.push_back(bias);
  }
  MF_TRY(options.seed, parse_seed(flags.seed));
  return options;
}

Result<GenerationOptions> generation_options_of(const SamplingFlags& sampling, const ReplyFlags& reply,
                                                const SamplingDefaults& defaults) {
  GenerationOptions options;
  MF_TRY(options.sampling, sampling_options_of(sampling, defaults));
  if (reply.max_tokens && *reply.max_tokens >= 0)
    options.max_tokens =
        static_cast<std::uint32_t>(std::min<std::int64_t>(*reply.max_tokens, GenerationOptions::kNoLimit));
  options.stop = reply.stop;
  options.json_object = reply.json_object;
  options.ignores_end = reply.ignores_end;
  return options;
}

}  // namespace moeflux::cli
