#include "sampling/generation_config.h"

#include <fmt/format.h>

#include <limits>
#include <string>

#include "base/json/object_reader.h"
#include "sampling/weight.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxEndTokens = 64;

Status read_number(const ObjectReader& file, std::string_view key, double highest,
                   std::optional<double>& number) {
  if (!file.has(key)) return {};
  MF_TRY(number, file.number(key, 0, highest));
  return {};
}

Status read_top_k(const ObjectReader& file, std::optional<std::uint32_t>& top_k) {
  constexpr std::uint32_t kMax = std::numeric_limits<std::int32_t>::max();
  if (!file.has("top_k")) return {};
  const Json& value = *file.value("top_k");
  if (value.is_number_integer() && !value.is_number_unsigned() && value.get<std::int64_t>() == -1) {
    top_k = 0;
    return {};
  }
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMax)
    return file.wrong("top_k", fmt::format("-1 or a whole number from 0 to {}", kMax));
  top_k = value.get<std::uint32_t>();
  return {};
}

Status read_end_tokens(const ObjectReader& file, std::vector<TokenId>& tokens) {
  constexpr std::string_view kKey = "eos_token_id";
  if (!file.has(kKey)) return {};
  const auto add = [&](const Json& value) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= kMaxSampledVocabulary) return false;
    tokens.emplace_back(value.get<std::uint32_t>());
    return true;
  };
  const Json& value = *file.value(kKey);
  bool right = !value.is_array() ? add(value) : value.size() <= kMaxEndTokens;
  if (value.is_array() && right)
    for (const Json& item : value) right = right && add(item);
  if (right) return {};
  return file.wrong(kKey, fmt::format("a token id below {}, or an array of at most {} of them",
                                      kMaxSampledVocabulary, kMaxEndTokens));
}

}  // namespace

Result<SamplingDefaults> parse_generation_config(std::string_view json, std::string_view name) {
  MF_TRY(const Json document, parse_json(json, name));
  MF_TRY(const ObjectReader file, ObjectReader::as_object(document, std::string(name)));
  SamplingDefaults defaults;
  MF_TRY_STATUS(read_number(file, "temperature", 100, defaults.temperature));
  MF_TRY_STATUS(read_number(file, "top_p", 1, defaults.top_p));
  MF_TRY_STATUS(read_number(file, "min_p", 1, defaults.min_p));
  MF_TRY_STATUS(read_number(file, "repetition_penalty", 100, defaults.repetition_penalty));
  if (defaults.repetition_penalty == 0.0)
    return file.wrong("repetition_penalty", "a number above 0 and at most 100");
  MF_TRY_STATUS(read_top_k(file, defaults.top_k));
  if (file.has("do_sample")) {
    MF_TRY(defaults.do_sample, file.boolean("do_sample"));
  }
  MF_TRY_STATUS(read_end_tokens(file, defaults.end_tokens));
  return defaults;
}

SamplingOptions options_of(const SamplingDefaults& defaults) {
  SamplingOptions options;
  options.temperature = defaults.temperature.value_or(options.temperature);
  options.top_k = defaults.top_k.value_or(options.top_k);
  options.top_p = defaults.top_p.value_or(options.top_p);
  options.min_p = defaults.min_p.value_or(options.min_p);
  options.repetition_penalty = defaults.repetition_penalty.value_or(options.repetition_penalty);
  if (defaults.do_sample == false) options.temperature = 0;
  return options;
}

}  // namespace moeflux
