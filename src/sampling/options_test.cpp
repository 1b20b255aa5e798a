#include "sampling/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "base/testing/states.h"
#include "sampling/generation_config.h"
#include "sampling/weight.h"

namespace moeflux {
namespace {

using test::States;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string refusal(const std::function<void(SamplingOptions&)>& change,
                    ErrorCode code = ErrorCode::invalid_argument) {
  SamplingOptions options;
  change(options);
  const Status status = check(options, 1000);
  EXPECT_FALSE(status);
  if (status) return "";
  EXPECT_EQ(status.error().code(), code);
  return status.error().message();
}

TEST(SamplingOptions, AcceptDefaultsAndLimits) {
  EXPECT_TRUE(check({}, 1000));
  SamplingOptions options;
  options.temperature = 100;
  options.top_p = 0;
  options.min_p = 1;
  options.repeat_last_n = -1;
  options.repetition_penalty = 100;
  options.presence_penalty = options.frequency_penalty = -2;
  options.top_logprobs = 20;
  options.logit_bias = {{TokenId{999}, -INFINITY}, {TokenId{0}, 1e6f}};
  EXPECT_TRUE(check(options, 1000));
}

TEST(SamplingOptions, RejectValuesOutOfRange) {
  using O = SamplingOptions;
  EXPECT_THAT(refusal([](O& o) { o.temperature = -0.5; }), States("temperature", "0 to 100", "-0.5"));
  EXPECT_THAT(refusal([](O& o) { o.temperature = kNan; }), States("temperature", "0 to 100", "nan"));
  EXPECT_THAT(refusal([](O& o) { o.temperature = INFINITY; }), States("temperature", "0 to 100", "inf"));
  EXPECT_THAT(refusal([](O& o) { o.top_p = 1.5; }), States("top_p", "0 to 1", "1.5"));
  EXPECT_THAT(refusal([](O& o) { o.top_p = kNan; }), States("top_p", "0 to 1", "nan"));
  EXPECT_THAT(refusal([](O& o) { o.min_p = -1; }), States("min_p", "0 to 1", "-1"));
  EXPECT_THAT(refusal([](O& o) { o.min_keep = 0; }), States("min_keep", "at least 1", "0"));
  EXPECT_THAT(refusal([](O& o) { o.repeat_last_n = -2; }), States("repeat_last_n", "-1 to 1048576", "-2"));
  EXPECT_THAT(refusal([](O& o) { o.repetition_penalty = 0; }),
              States("repetition_penalty", "above 0", "at most 100", "0"));
  EXPECT_THAT(refusal([](O& o) { o.repetition_penalty = kNan; }),
              States("repetition_penalty", "above 0", "at most 100", "nan"));
  EXPECT_THAT(refusal([](O& o) { o.presence_penalty = 3; }), States("presence_penalty", "-2 to 2", "3"));
  EXPECT_THAT(refusal([](O& o) { o.frequency_penalty = kNan; }),
              States("frequency_penalty", "-2 to 2", "nan"));
  EXPECT_THAT(refusal([](O& o) { o.top_logprobs = 21; }), States("top_logprobs", "0 to 20", "21"));
}

TEST(SamplingOptions, RejectABadBias) {
  const auto bias = [](std::uint32_t token, float value) {
    return [=](SamplingOptions& options) { options.logit_bias = {{TokenId{token}, value}}; };
  };
  EXPECT_THAT(refusal(bias(1000, 1), ErrorCode::token_out_of_range),
              States("logit_bias", "below 1000", "found 1000"));
  EXPECT_THAT(refusal(bias(7, INFINITY)),
              States("logit_bias", "token 7", "-1000000 to 1000000", "-inf", "found inf"));
  EXPECT_THAT(refusal(bias(7, NAN)), States("token 7", "nan"));
}

TEST(SamplingOptions, RejectAVocabularyThatIsEmptyOrTooLarge) {
  EXPECT_FALSE(check({}, 0));
  EXPECT_TRUE(check({}, kMaxSampledVocabulary));
  EXPECT_FALSE(check({}, kMaxSampledVocabulary + 1));
}

SamplingDefaults parsed(std::string_view json) {
  auto defaults = parse_generation_config(json, "generation_config.json");
  EXPECT_TRUE(defaults) << (defaults ? "" : defaults.error().message());
  return defaults ? *defaults : SamplingDefaults{};
}

std::string refusal(std::string_view json) {
  const auto defaults = parse_generation_config(json, "generation_config.json");
  EXPECT_FALSE(defaults) << json;
  return defaults ? "" : defaults.error().message();
}

TEST(GenerationConfig, ReadsTheDefaultsOfAModel) {
  const SamplingDefaults defaults = parsed(R"({
    "bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643], "pad_token_id": 151643,
    "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05,
    "transformers_version": "4.51.0"})");
  EXPECT_EQ(defaults.temperature, 0.6);
  EXPECT_EQ(defaults.top_k, 20);
  EXPECT_EQ(defaults.top_p, 0.95);
  EXPECT_EQ(defaults.min_p, 0.05);
  EXPECT_EQ(defaults.repetition_penalty, 1.05);
  EXPECT_EQ(defaults.do_sample, true);
  EXPECT_EQ(defaults.end_tokens, (std::vector<TokenId>{TokenId{151645}, TokenId{151643}}));
  const SamplingOptions options = options_of(defaults);
  EXPECT_EQ(options.temperature, 0.6);
  EXPECT_EQ(options.top_k, 20);
  EXPECT_EQ(options.top_p, 0.95);
  EXPECT_EQ(options.min_p, 0.05);
  EXPECT_EQ(options.repetition_penalty, 1.05);
  EXPECT_TRUE(check(options, 151936));
}

TEST(GenerationConfig, LeavesAbsentAndNullKeysUnset) {
  const SamplingDefaults defaults = parsed(R"({"top_p": null})");
  EXPECT_FALSE(defaults.temperature || defaults.top_p || defaults.min_p || defaults.repetition_penalty);
  EXPECT_FALSE(defaults.top_k || defaults.do_sample);
  EXPECT_TRUE(defaults.end_tokens.empty());
  EXPECT_EQ(options_of(defaults).temperature, 1.0);
}

TEST(GenerationConfig, ReadsOneEndTokenAndATopKThatIsOff) {
  const SamplingDefaults defaults = parsed(R"({"eos_token_id": 2, "top_k": -1, "temperature": 1})");
  EXPECT_EQ(defaults.end_tokens, std::vector<TokenId>{TokenId{2}});
  EXPECT_EQ(defaults.top_k, 0);
  EXPECT_EQ(defaults.temperature, 1.0);
}

TEST(GenerationConfig, IsGreedyWithoutDoSample) {
  EXPECT_EQ(options_of(parsed(R"({"do_sample": false, "temperature": 0.7})")).temperature, 0);
}

TEST(GenerationConfig, NamesTheKeyOfAWrongValue) {
  EXPECT_THAT(refusal(R"({"temperature": "hot"})"),
              States("generation_config.json", "temperature", "number", "0 to 100", "\"hot\""));
  EXPECT_THAT(refusal(R"({"top_p": 1.1})"), States("top_p", "number", "0 to 1", "1.1"));
  EXPECT_THAT(refusal(R"({"min_p": []})"), States("min_p"));
  EXPECT_THAT(refusal(R"({"repetition_penalty": 0})"), States("repetition_penalty", "number above 0", 100));
  EXPECT_THAT(refusal(R"({"top_k": 2.5})"), States("top_k", "-1", "whole number"));
  EXPECT_THAT(refusal(R"({"top_k": -2})"), States("top_k"));
  EXPECT_THAT(refusal(R"({"do_sample": 1})"), States("do_sample", "true or false", 1));
  EXPECT_THAT(refusal(R"({"eos_token_id": "</s>"})"),
              States("eos_token_id", "token id", kMaxSampledVocabulary));
  EXPECT_THAT(refusal(R"({"eos_token_id": [1, -1]})"), States("eos_token_id"));
  EXPECT_THAT(refusal(R"([1])"), States("generation_config.json", "object"));
  EXPECT_THAT(refusal(R"({"top_k": )"), States("generation_config.json:1:"));
}

}  // namespace
}  // namespace moeflux
