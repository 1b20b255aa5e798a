// What both families share: who reads a config, rotary embeddings, end tokens, keys that nobody knows.

#include "source/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "source/testing/parsed_config.h"
#include "source/testing/tiny_models.h"

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Json kDefaultRope = Json::parse(R"({"rope_type": "default", "rope_theta": 10000})");
const Json kYarn = Json::parse(R"({"rope_type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1,
    "mscale": 1, "mscale_all_dim": 0.5, "original_max_position_embeddings": 4096})");

Json deepseek() { return tiny_deepseek_mlx().config; }
Json qwen() { return tiny_qwen_mlx().config; }

const RopeConfig& rope_of(const ParsedConfig& config) {
  return std::get<MlaConfig>(config->layers[0].mixer).rope;
}

TEST(ModelFamily, IsThatOfTheModelType) {
  EXPECT_EQ(parsed(qwen())->family, Family::qwen3_5_moe);
  EXPECT_EQ(parsed(with(qwen(), {{"model_type", "qwen3_5_moe_text"}}))->family, Family::qwen3_5_moe);
  EXPECT_EQ(parsed(deepseek())->family, Family::deepseek_v3);
}

TEST(ModelFamily, OfAnotherKindIsRefusedByName) {
  for (const char* type : {"qwen3_next", "qwen3_moe", "llama", "deepseek_v2", "kimi_k2", "gpt_oss"}) {
    const auto config = parsed(with(qwen(), {{"model_type", type}}));
    ASSERT_FALSE(config) << type;
    EXPECT_EQ(config.model.error().code(), ErrorCode::unsupported);
    EXPECT_THAT(config.message(), HasSubstr(std::string("model_type '") + type + "' is not supported"));
  }
  EXPECT_EQ(parsed(without(qwen(), {"model_type"})).message(), "config.json: 'model_type' is missing");
}

TEST(RopeKeys, MeanTheSameInTheOldAndTheNewSpelling) {
  const auto old_plain = parsed(deepseek());
  const auto new_plain =
      parsed(with(without(deepseek(), {"rope_theta"}), {{"rope_parameters", kDefaultRope}}));
  ASSERT_TRUE(old_plain) << old_plain.message();
  ASSERT_TRUE(new_plain) << new_plain.message();
  EXPECT_EQ(*old_plain, *new_plain);
  EXPECT_FALSE(rope_of(old_plain).yarn);

  Json with_theta = kYarn;
  with_theta["rope_theta"] = 10000;
  const auto old_yarn = parsed(with(deepseek(), {{"rope_scaling", kYarn}}));
  const auto new_yarn = parsed(with(without(deepseek(), {"rope_theta"}), {{"rope_parameters", with_theta}}));
  ASSERT_TRUE(old_yarn) << old_yarn.message();
  ASSERT_TRUE(new_yarn) << new_yarn.message();
  EXPECT_EQ(*old_yarn, *new_yarn);
  EXPECT_EQ(rope_of(old_yarn).yarn, (YarnConfig{40, 32, 1, 1, 0.5, 4096}));
  EXPECT_THAT(old_yarn.notes, IsEmpty());
  EXPECT_THAT(new_yarn.notes, IsEmpty());
}

TEST(RopeKeys, TakeTypeForRopeTypeInTheOldestConfigs) {
  Json old = without(kYarn, {"rope_type"});
  old["type"] = "yarn";
  const auto config = parsed(with(deepseek(), {{"rope_scaling", old}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_TRUE(rope_of(config).yarn);
}

TEST(RopeKeys, OfTheNewSpellingWinWithANote) {
  Json parameters = kDefaultRope;
  parameters["rope_theta"] = 5;
  const auto theta = parsed(with(deepseek(), {{"rope_parameters", parameters}}));
  ASSERT_TRUE(theta) << theta.message();
  EXPECT_EQ(rope_of(theta).theta, 5);
  EXPECT_THAT(theta.notes,
              ElementsAre(HasSubstr("'rope_theta' is 5 in rope_parameters and 10000 beside it; 5 is used")));

  const auto scaling = parsed(with(deepseek(), {{"rope_parameters", kDefaultRope}, {"rope_scaling", kYarn}}));
  ASSERT_TRUE(scaling) << scaling.message();
  EXPECT_FALSE(rope_of(scaling).yarn);
  EXPECT_THAT(scaling.notes, ElementsAre(HasSubstr("'rope_parameters' and 'rope_scaling' differ")));
}

TEST(RopeKeys, ThatAgreeInBothSpellingsNeedNoNote) {
  Json parameters = kYarn;
  parameters["rope_theta"] = 10000;
  const auto config = parsed(with(deepseek(), {{"rope_parameters", parameters}, {"rope_scaling", kYarn}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(RopeKeys, OfTwoTypesInOnePlaceTakeTheNewOneWithANote) {
  Json both = kYarn;
  both["type"] = "linear";
  const auto config = parsed(with(deepseek(), {{"rope_scaling", both}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_TRUE(rope_of(config).yarn);
  EXPECT_THAT(config.notes, ElementsAre(HasSubstr("'rope_type' and 'type' differ; 'rope_type' is used")));
  both["type"] = "yarn";
  EXPECT_THAT(parsed(with(deepseek(), {{"rope_scaling", both}})).notes, IsEmpty());
}

TEST(RopeKeys, ThatAreMissingAreNamed) {
  EXPECT_EQ(parsed(without(deepseek(), {"rope_theta"})).message(), "config.json: 'rope_theta' is missing");
  EXPECT_EQ(parsed(with(deepseek(), {{"rope_scaling", Json::object()}})).message(),
            "config.json: rope_scaling: 'rope_type' is missing");
  for (const char* key :
       {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "original_max_position_embeddings"}) {
    const auto config = parsed(with(deepseek(), {{"rope_scaling", without(kYarn, {key})}}));
    EXPECT_EQ(config.message(), std::string("config.json: rope_scaling: '") + key + "' is missing");
  }
}

TEST(RopeKeys, OfOtherTypesAreRefusedByName) {
  for (const char* type : {"linear", "dynamic", "llama3", "longrope", "mrope"}) {
    const auto config = parsed(with(deepseek(), {{"rope_scaling", with(kYarn, {{"rope_type", type}})}}));
    ASSERT_FALSE(config) << type;
    EXPECT_EQ(config.model.error().code(), ErrorCode::unsupported);
    EXPECT_THAT(config.message(), HasSubstr(std::string("rope type '") + type + "' is not supported"));
  }
  EXPECT_THAT(
      parsed(with(deepseek(), {{"rope_scaling", with(kYarn, {{"attention_factor", 1.5}})}})).message(),
      HasSubstr("'attention_factor' is 1.5, and only null is supported"));
  EXPECT_THAT(parsed(with(deepseek(), {{"rope_scaling", with(kYarn, {{"truncate", false}})}})).message(),
              HasSubstr("'truncate' is false, and only true is supported"));
}

TEST(EndTokens, AreOneOrManyOrNone) {
  EXPECT_THAT(parsed(with(qwen(), {{"eos_token_id", 95}}))->end_tokens, ElementsAre(TokenId(95)));
  EXPECT_THAT(parsed(with(qwen(), {{"eos_token_id", {3, 0}}}))->end_tokens,
              ElementsAre(TokenId(3), TokenId(0)));
  EXPECT_THAT(parsed(with(qwen(), {{"eos_token_id", nullptr}}))->end_tokens, IsEmpty());
  EXPECT_THAT(parsed(without(qwen(), {"eos_token_id"}))->end_tokens, IsEmpty());
}

TEST(EndTokens, AreInTheVocabulary) {
  for (const char* id : {"96", "-1", "\"x\"", "1.5", "[1, 96]", "[null]", "[[1]]", "true"}) {
    const auto config = parsed(with(qwen(), {{"eos_token_id", Json::parse(id)}}));
    ASSERT_FALSE(config) << id;
    EXPECT_THAT(config.message(), HasSubstr("'eos_token_id' must be token ids below vocab_size 96")) << id;
  }
}

TEST(UnknownKeys, AreNotedByNameAndKnownBystandersAreNot) {
  EXPECT_THAT(parsed(qwen()).notes, IsEmpty());
  EXPECT_THAT(parsed(deepseek()).notes, IsEmpty());
  const auto config =
      parsed(with(qwen(), {{"use_cache", true}, {"new_knob", 1}, {"torch_dtype", "bfloat16"}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_THAT(config.notes, ElementsAre("config.json: unknown keys ignored: new_knob"));
}

TEST(UnknownKeys, InGreatNumberAreCounted) {
  Json many = deepseek();
  for (int i = 0; i < 20; ++i) many["knob" + std::to_string(i)] = i;
  const auto config = parsed(many);
  ASSERT_TRUE(config) << config.message();
  EXPECT_THAT(config.notes,
              ElementsAre(HasSubstr("knob0, knob1, knob2, knob3, knob4, knob5, knob6, knob7 and 12 more")));
}

}  // namespace
}  // namespace moeflux
