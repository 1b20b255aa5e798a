// Parts that both families share: the choice of the reader, rotary embeddings, end tokens, unknown keys.

#include "source/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/states.h"
#include "source/testing/parsed_config.h"
#include "source/testing/tiny_models.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;
using testing::IsEmpty;

const Json kDefaultRope = Json::parse(R"({"rope_type": "default", "rope_theta": 10000})");
const Json kYarn = Json::parse(R"({"rope_type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1,
    "mscale": 1, "mscale_all_dim": 0.5, "original_max_position_embeddings": 4096})");

Json deepseek() { return tiny_deepseek_mlx().config; }
Json qwen() { return tiny_qwen_mlx().config; }

const RopeConfig& rope_of(const ParsedConfig& config) {
  return std::get<MlaConfig>(config->layers[0].mixer).rope;
}

TEST(ModelFamily, FollowsTheModelType) {
  EXPECT_EQ(parsed(qwen())->family, Family::qwen3_5_moe);
  EXPECT_EQ(parsed(with(qwen(), {{"model_type", "qwen3_5_moe_text"}}))->family, Family::qwen3_5_moe);
  EXPECT_EQ(parsed(deepseek())->family, Family::deepseek_v3);
}

TEST(ModelFamily, RejectsOtherFamiliesByName) {
  for (const char* type : {"qwen3_next", "qwen3_moe", "llama", "deepseek_v2", "kimi_k2", "gpt_oss"}) {
    const auto config = parsed(with(qwen(), {{"model_type", type}}));
    ASSERT_FALSE(config) << type;
    EXPECT_EQ(config.model.error().code(), ErrorCode::unsupported);
    EXPECT_THAT(config.message(), States("model_type", type));
  }
  EXPECT_THAT(parsed(without(qwen(), {"model_type"})).message(),
              States("config.json", "'model_type'", "missing"));
}

TEST(RopeKeys, AreEqualInOldAndNewSpelling) {
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

TEST(RopeKeys, AcceptTypeForRopeTypeInOldConfigs) {
  Json old = without(kYarn, {"rope_type"});
  old["type"] = "yarn";
  const auto config = parsed(with(deepseek(), {{"rope_scaling", old}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_TRUE(rope_of(config).yarn);
}

TEST(RopeKeys, PreferTheNewSpellingWithANote) {
  Json parameters = kDefaultRope;
  parameters["rope_theta"] = 5;
  const auto theta = parsed(with(deepseek(), {{"rope_parameters", parameters}}));
  ASSERT_TRUE(theta) << theta.message();
  EXPECT_EQ(rope_of(theta).theta, 5);
  EXPECT_THAT(theta.notes,
              ElementsAre(States("'rope_theta'", 5, "rope_parameters", 10000, "beside", "used")));

  const auto scaling = parsed(with(deepseek(), {{"rope_parameters", kDefaultRope}, {"rope_scaling", kYarn}}));
  ASSERT_TRUE(scaling) << scaling.message();
  EXPECT_FALSE(rope_of(scaling).yarn);
  EXPECT_THAT(scaling.notes, ElementsAre(States("'rope_parameters'", "'rope_scaling'", "differ")));
}

TEST(RopeKeys, NeedNoNoteIfBothSpellingsAgree) {
  Json parameters = kYarn;
  parameters["rope_theta"] = 10000;
  const auto config = parsed(with(deepseek(), {{"rope_parameters", parameters}, {"rope_scaling", kYarn}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(RopeKeys, PreferRopeTypeToTypeWithANote) {
  Json both = kYarn;
  both["type"] = "linear";
  const auto config = parsed(with(deepseek(), {{"rope_scaling", both}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_TRUE(rope_of(config).yarn);
  EXPECT_THAT(config.notes, ElementsAre(States("'rope_type'", "'type'", "differ", "used")));
  both["type"] = "yarn";
  EXPECT_THAT(parsed(with(deepseek(), {{"rope_scaling", both}})).notes, IsEmpty());
}

TEST(RopeKeys, AreNamedIfMissing) {
  EXPECT_THAT(parsed(without(deepseek(), {"rope_theta"})).message(),
              States("config.json", "'rope_theta'", "missing"));
  EXPECT_THAT(parsed(with(deepseek(), {{"rope_scaling", Json::object()}})).message(),
              States("config.json", "rope_scaling", "'rope_type'", "missing"));
  for (const char* key :
       {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "original_max_position_embeddings"}) {
    const auto config = parsed(with(deepseek(), {{"rope_scaling", without(kYarn, {key})}}));
    EXPECT_THAT(config.message(), States("config.json", "rope_scaling", key, "missing"));
  }
}

TEST(RopeKeys, RejectOtherTypesByName) {
  for (const char* type : {"linear", "dynamic", "llama3", "longrope", "mrope"}) {
    const auto config = parsed(with(deepseek(), {{"rope_scaling", with(kYarn, {{"rope_type", type}})}}));
    ASSERT_FALSE(config) << type;
    EXPECT_EQ(config.model.error().code(), ErrorCode::unsupported);
    EXPECT_THAT(config.message(), States(type));
  }
  EXPECT_THAT(
      parsed(with(deepseek(), {{"rope_scaling", with(kYarn, {{"attention_factor", 1.5}})}})).message(),
      States("'attention_factor'", "1.5", "null"));
  EXPECT_THAT(parsed(with(deepseek(), {{"rope_scaling", with(kYarn, {{"truncate", false}})}})).message(),
              States("'truncate'", "false", "true"));
}

TEST(EndTokens, AreOneOrManyOrNone) {
  EXPECT_THAT(parsed(with(qwen(), {{"eos_token_id", 95}}))->end_tokens, ElementsAre(TokenId(95)));
  EXPECT_THAT(parsed(with(qwen(), {{"eos_token_id", {3, 0}}}))->end_tokens,
              ElementsAre(TokenId(3), TokenId(0)));
  EXPECT_THAT(parsed(with(qwen(), {{"eos_token_id", nullptr}}))->end_tokens, IsEmpty());
  EXPECT_THAT(parsed(without(qwen(), {"eos_token_id"}))->end_tokens, IsEmpty());
}

TEST(EndTokens, MustBeInTheVocabulary) {
  for (const char* id : {"96", "-1", "\"x\"", "1.5", "[1, 96]", "[null]", "[[1]]", "true"}) {
    const auto config = parsed(with(qwen(), {{"eos_token_id", Json::parse(id)}}));
    ASSERT_FALSE(config) << id;
    EXPECT_THAT(config.message(), States("'eos_token_id'", "vocab_size", 96)) << id;
  }
}

TEST(UnknownKeys, AreNotedByNameUnlessKnownToBeHarmless) {
  EXPECT_THAT(parsed(qwen()).notes, IsEmpty());
  EXPECT_THAT(parsed(deepseek()).notes, IsEmpty());
  const auto config =
      parsed(with(qwen(), {{"use_cache", true}, {"new_knob", 1}, {"torch_dtype", "bfloat16"}}));
  ASSERT_TRUE(config) << config.message();
  EXPECT_THAT(config.notes, ElementsAre(States("config.json", "new_knob")));
}

TEST(UnknownKeys, AreCountedIfMany) {
  Json many = deepseek();
  for (int i = 0; i < 20; ++i) many["knob" + std::to_string(i)] = i;
  const auto config = parsed(many);
  ASSERT_TRUE(config) << config.message();
  EXPECT_THAT(config.notes, ElementsAre(States("knob0", "knob1", "knob2", "knob3", "knob4", "knob5", "knob6",
                                               "knob7", 12)));
}

}  // namespace
}  // namespace moeflux
