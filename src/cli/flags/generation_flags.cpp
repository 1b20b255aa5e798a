#include "cli/flags/generation_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/printable.h"
#include "cli/flags/flag_groups.h"

namespace moeflux::cli {

// min_keep and top_logprobs have no flags.
const SamplingOptionNames kSamplingFlagNames{
    .temperature = "--temp",
    .top_p = "--top-p",
    .min_p = "--min-p",
    .repeat_last_n = "--repeat-last-n",
    .repetition_penalty = "--repeat-penalty",
    .presence_penalty = "--presence-penalty",
    .frequency_penalty = "--frequency-penalty",
    .logit_bias = "--logit-bias",
};

void add_sampling_flags(CLI::App& command, SamplingFlags& sampling) {
  const auto add = [&](const std::string& name, auto& value, const std::string& help) {
    command.add_option(name, value, help)->group(kSampling);
  };
  add("--temp,--temperature", sampling.temperature, "0: always the most probable token");
  add("--top-k", sampling.top_k, "Only the K most probable; 0 or less: all");
  add("--top-p", sampling.top_p, "Only the most probable that together reach this probability");
  add("--min-p", sampling.min_p, "Only those at least this probable relative to the most probable");
  add("--repeat-penalty", sampling.repetition_penalty, "Penalty on tokens of prompt and reply; 1: none");
  add("--presence-penalty", sampling.presence_penalty, "Subtracted once from generated tokens");
  add("--frequency-penalty", sampling.frequency_penalty,
      "Subtracted for each occurrence of a generated token");
  add("--repeat-last-n", sampling.repeat_last_n,
      "Tokens that penalties look at (default 64; -1: all, 0: none)");
  add("--logit-bias", sampling.logit_bias, "TOKEN+BIAS or TOKEN-BIAS, as in 15043-inf; may be repeated");
  command.get_option("--logit-bias")->allow_extra_args(false);
  add("-s,--seed", sampling.seed,
      "The same seed gives the same text (default and -1: a different one each time)");
}

void add_reply_flags(CLI::App& command, ReplyFlags& reply) {
  command
      .add_option("-n,--n-predict,--predict,--max-tokens", reply.max_tokens,
                  "Maximum tokens (default and -1: as many as fit in the context)")
      ->group(kReply);
  command.add_option("--stop", reply.stop, "The reply ends before this text; may be repeated")
      ->allow_extra_args(false)
      ->group(kReply);
  command.add_flag("--json-object", reply.json_object, "The reply is exactly one JSON object")->group(kReply);
  command.add_flag("--ignore-eos", reply.ignores_end, "Continue after the model ended its reply")
      ->group(kReply);
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
