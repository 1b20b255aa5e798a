#include "sampling/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "sampling/generation_config.h"
#include "sampling/weight.h"

namespace moeflux {
namespace {

using testing::HasSubstr;

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

TEST(SamplingOptions, AreFineByDefaultAndAtTheirLimits) {
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

TEST(SamplingOptions, NameTheOptionTheRangeAndTheValue) {
  using O = SamplingOptions;
  EXPECT_EQ(refusal([](O& o) { o.temperature = -0.5; }), "temperature must be from 0 to 100, found -0.5");
  EXPECT_EQ(refusal([](O& o) { o.temperature = kNan; }), "temperature must be from 0 to 100, found nan");
  EXPECT_EQ(refusal([](O& o) { o.temperature = INFINITY; }), "temperature must be from 0 to 100, found inf");
  EXPECT_EQ(refusal([](O& o) { o.top_p = 1.5; }), "top_p must be from 0 to 1, found 1.5");
  EXPECT_EQ(refusal([](O& o) { o.top_p = kNan; }), "top_p must be from 0 to 1, found nan");
  EXPECT_EQ(refusal([](O& o) { o.min_p = -1; }), "min_p must be from 0 to 1, found -1");
  EXPECT_EQ(refusal([](O& o) { o.min_keep = 0; }), "min_keep must be at least 1, found 0");
  EXPECT_EQ(refusal([](O& o) { o.repeat_last_n = -2; }),
            "repeat_last_n must be from -1 to 1.04858e+06, found -2");
  EXPECT_EQ(refusal([](O& o) { o.repetition_penalty = 0; }),
            "repetition_penalty must be above 0 and at most 100, found 0");
  EXPECT_EQ(refusal([](O& o) { o.repetition_penalty = kNan; }),
            "repetition_penalty must be above 0 and at most 100, found nan");
  EXPECT_EQ(refusal([](O& o) { o.presence_penalty = 3; }), "presence_penalty must be from -2 to 2, found 3");
  EXPECT_EQ(refusal([](O& o) { o.frequency_penalty = kNan; }),
            "frequency_penalty must be from -2 to 2, found nan");
  EXPECT_EQ(refusal([](O& o) { o.top_logprobs = 21; }), "top_logprobs must be from 0 to 20, found 21");
}

TEST(SamplingOptions, NameTheTokenOfABias) {
  using O = SamplingOptions;
  EXPECT_EQ(refusal(
                [](O& o) {
                  o.logit_bias = {{TokenId{1000}, 1}};
                },
                ErrorCode::token_out_of_range),
            "logit_bias must name a token below 1000, found 1000");
  EXPECT_EQ(refusal([](O& o) {
              o.logit_bias = {{TokenId{7}, INFINITY}};
            }),
            "logit_bias of token 7 must be from -1e+06 to 1e+06, or -inf, found inf");
  EXPECT_THAT(refusal([](O& o) { o.logit_bias = {{TokenId{7}, NAN}}; }), HasSubstr("found nan"));
}

TEST(SamplingOptions, RefuseAVocabularyThatIsTooLargeOrEmpty) {
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

TEST(GenerationConfig, GivesWhatTheModelWishes) {
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

TEST(GenerationConfig, IsSilentWhereTheFileIs) {
  const SamplingDefaults defaults = parsed(R"({"top_p": null})");
  EXPECT_FALSE(defaults.temperature || defaults.top_p || defaults.min_p || defaults.repetition_penalty);
  EXPECT_FALSE(defaults.top_k || defaults.do_sample);
  EXPECT_TRUE(defaults.end_tokens.empty());
  EXPECT_EQ(options_of(defaults).temperature, 1.0);
}

TEST(GenerationConfig, TakesOneEndTokenAndATopKThatIsOff) {
  const SamplingDefaults defaults = parsed(R"({"eos_token_id": 2, "top_k": -1, "temperature": 1})");
  EXPECT_EQ(defaults.end_tokens, std::vector<TokenId>{TokenId{2}});
  EXPECT_EQ(defaults.top_k, 0);
  EXPECT_EQ(defaults.temperature, 1.0);
}

TEST(GenerationConfig, IsGreedyWithoutSampling) {
  EXPECT_EQ(options_of(parsed(R"({"do_sample": false, "temperature": 0.7})")).temperature, 0);
}

TEST(GenerationConfig, NamesTheKeyOfAWrongValue) {
  EXPECT_EQ(refusal(R"({"temperature": "hot"})"),
            "generation_config.json: 'temperature' must be a number from 0 to 100, found \"hot\"");
  EXPECT_THAT(refusal(R"({"top_p": 1.1})"), HasSubstr("'top_p' must be a number from 0 to 1, found 1.1"));
  EXPECT_THAT(refusal(R"({"min_p": []})"), HasSubstr("'min_p' must be"));
  EXPECT_THAT(refusal(R"({"repetition_penalty": 0})"),
              HasSubstr("'repetition_penalty' must be a number above 0"));
  EXPECT_THAT(refusal(R"({"top_k": 2.5})"), HasSubstr("'top_k' must be -1 or a whole number"));
  EXPECT_THAT(refusal(R"({"top_k": -2})"), HasSubstr("'top_k' must be"));
  EXPECT_THAT(refusal(R"({"do_sample": 1})"), HasSubstr("'do_sample' must be true or false, found 1"));
  EXPECT_THAT(refusal(R"({"eos_token_id": "</s>"})"), HasSubstr("'eos_token_id' must be a token id below"));
  EXPECT_THAT(refusal(R"({"eos_token_id": [1, -1]})"), HasSubstr("'eos_token_id' must be"));
  EXPECT_THAT(refusal(R"([1])"), HasSubstr("generation_config.json: expected an object"));
  EXPECT_THAT(refusal(R"({"top_k": )"), HasSubstr("generation_config.json:1:"));
}

}  // namespace
}  // namespace moeflux
