#include "sampling/options.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "sampling/weight.h"

namespace moeflux {
namespace {

constexpr double kMaxBias = 1e6;

Error refused(std::string_view option, std::string_view expected, double found) {
  return {ErrorCode::invalid_argument, fmt::format("{}: expected {}, found {}", option, expected, found)};
}

// NaN is outside of every range.
Status in_range(std::string_view option, double value, double lowest, double highest) {
  if (value >= lowest && value <= highest) return {};
  return refused(option, fmt::format("{} to {}", lowest, highest), value);
}

Status check_bias(std::string_view option, const LogitBias& entry, std::size_t vocabulary_size) {
  if (entry.token.index() >= vocabulary_size)
    return Error{ErrorCode::token_out_of_range, fmt::format("{}: expected a token below {}, found {}", option,
                                                            vocabulary_size, entry.token.index())};
  const double bias = static_cast<double>(entry.bias);
  if (bias == -INFINITY || std::fabs(bias) <= kMaxBias) return {};
  return refused(fmt::format("{} of token {}", option, entry.token.index()),
                 fmt::format("{} to {}, or -inf", -kMaxBias, kMaxBias), bias);
}

}  // namespace

Status check(const SamplingOptions& options, std::size_t vocabulary_size, const SamplingOptionNames& names) {
  if (vocabulary_size == 0 || vocabulary_size > kMaxSampledVocabulary)
    return Error{ErrorCode::unsupported,
                 fmt::format("sampling: expected a vocabulary of 1 to {} tokens, found {}",
                             kMaxSampledVocabulary, vocabulary_size)};
  MF_TRY_STATUS(in_range(names.temperature, options.temperature, 0, 100));
  MF_TRY_STATUS(in_range(names.top_p, options.top_p, 0, 1));
  MF_TRY_STATUS(in_range(names.min_p, options.min_p, 0, 1));
  if (options.min_keep == 0) return refused(names.min_keep, "at least 1", 0);
  MF_TRY_STATUS(in_range(names.repeat_last_n, options.repeat_last_n, -1, kMaxRepeatLastN));
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= 100))
    return refused(names.repetition_penalty, "above 0 and at most 100", options.repetition_penalty);
  MF_TRY_STATUS(in_range(names.presence_penalty, options.presence_penalty, -2, 2));
  MF_TRY_STATUS(in_range(names.frequency_penalty, options.frequency_penalty, -2, 2));
  MF_TRY_STATUS(in_range(names.top_logprobs, options.top_logprobs, 0, kMaxTopLogprobs));
  for (const LogitBias& entry : options.logit_bias)
    MF_TRY_STATUS(check_bias(names.logit_bias, entry, vocabulary_size));
  return {};
}

}  // namespace moeflux
