#include "cli/flags/generation_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/testing/states.h"

namespace moeflux::cli {
namespace {

using test::States;

TEST(SamplingFlags, OverrideTheModelsValuesWhichOverrideTheDefaults) {
  SamplingDefaults wishes;
  wishes.temperature = 0.7;
  wishes.top_k = 20;
  SamplingFlags flags;
  flags.top_k = 5;
  flags.seed = "9";
  const Result<SamplingOptions> options = sampling_options_of(flags, wishes);
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->temperature, 0.7);
  EXPECT_EQ(options->top_k, 5u);
  EXPECT_EQ(options->top_p, SamplingOptions().top_p);
  EXPECT_EQ(options->seed, 9u);
  flags.seed = "-1";
  flags.top_k = -1;
  EXPECT_FALSE(sampling_options_of(flags, wishes)->seed.has_value());
  EXPECT_EQ(sampling_options_of(flags, wishes)->top_k, 0u);
}

TEST(Seeds, AreIntegersOf64Bits) {
  EXPECT_EQ(*parse_seed("0"), 0u);
  EXPECT_EQ(*parse_seed("18446744073709551615"), ~std::uint64_t{0});
  EXPECT_FALSE(parse_seed("-1")->has_value());
  EXPECT_FALSE(parse_seed("")->has_value());
  for (const char* wrong : {"x", "1x", "-", "1.5", "18446744073709551616"})
    EXPECT_THAT(parse_seed(wrong), States("--seed", std::string("'") + wrong + "'"));
}

TEST(LogitBias, IsWrittenAsInLlamaCpp) {
  const auto bias = [](std::string_view text) {
    const Result<LogitBias> parsed = parse_logit_bias(text);
    EXPECT_TRUE(parsed) << text;
    return parsed ? std::pair(parsed->token.index(), parsed->bias) : std::pair(0u, 0.0f);
  };
  EXPECT_EQ(bias("15043+1"), std::pair(15043u, 1.0f));
  EXPECT_EQ(bias("15043-1.5"), std::pair(15043u, -1.5f));
  EXPECT_EQ(bias("0-inf"), std::pair(0u, -std::numeric_limits<float>::infinity()));
  for (const char* wrong :
       {"", "x", "15043", "15043*2", "-1+2", "5+", "5+x", "5+1x", "5+-1", "5+nan", "99999999999+1"}) {
    const Result<LogitBias> parsed = parse_logit_bias(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_THAT(parsed, States("--logit-bias", std::string("'") + wrong + "'"));
  }
}

TEST(ReplyFlags, BecomeOptions) {
  ReplyFlags reply;
  reply.max_tokens = 5;
  reply.stop = {"x"};
  reply.json_object = reply.ignores_end = true;
  const Result<GenerationOptions> options = generation_options_of({}, reply, {});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->max_tokens, 5u);
  EXPECT_EQ(options->stop, reply.stop);
  EXPECT_TRUE(options->json_object && options->ignores_end);
  EXPECT_EQ(generation_options_of({}, {}, {})->max_tokens, GenerationOptions::kNoLimit);
  reply.max_tokens = -1;
  EXPECT_EQ(generation_options_of({}, reply, {})->max_tokens, GenerationOptions::kNoLimit);
}

}  // namespace
}  // namespace moeflux::cli
