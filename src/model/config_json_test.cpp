#include "model/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

using testing::HasSubstr;

Result<ModelConfig> read(const Json& json) {
  // Through text, so that numbers are what the parser makes of them.
  auto document = parse_json(json.dump(), "manifest");
  EXPECT_TRUE(document) << document.error().message();
  return config_from_json(*document, "manifest: config");
}

std::string message_of(const Json& json) {
  const auto config = read(json);
  return config ? "no error" : config.error().message();
}

// Configs that between them have everything that a config can have, and lack everything that it can lack.
std::vector<std::pair<std::string, ModelConfig>> configs() {
  std::vector<std::pair<std::string, ModelConfig>> all{{"qwen", tiny_qwen_config()},
                                                       {"deepseek", tiny_deepseek_config()}};
  ModelConfig plain = tiny_deepseek_config();
  auto& mla = std::get<MlaConfig>(plain.layers[1].mixer);
  mla.query_latent_dim = std::nullopt;
  mla.rope.yarn = std::nullopt;
  auto& moe = std::get<MoeConfig>(plain.layers[1].mlp);
  moe.shared = std::nullopt;
  std::get<GroupedSigmoidRouterConfig>(moe.router).normalise = false;
  plain.end_tokens.clear();
  plain.tied_embeddings = true;
  all.emplace_back("deepseek without what is optional", plain);
  ModelConfig alone = tiny_qwen_config();
  std::get<MoeConfig>(alone.layers[0].mlp).shared = std::nullopt;
  alone.layers[1].mlp = DenseMlpConfig{.hidden_dim = 4096};
  all.emplace_back("qwen without shared experts", alone);
  return all;
}

TEST(ConfigJson, ComesBackAsItWas) {
  for (const auto& [name, config] : configs()) {
    const auto again = read(config_to_json(config));
    ASSERT_TRUE(again) << name << ": " << again.error().message();
    EXPECT_EQ(*again, config) << name;
  }
}

TEST(ConfigJson, KeepsNumbersThatHaveNoShortDecimalForm) {
  ModelConfig config = tiny_deepseek_config();
  config.norm_eps = 1.0 / 3e5;
  std::get<MlaConfig>(config.layers[0].mixer).rope.theta = 9999.999999999998;
  const auto again = read(config_to_json(config));
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(*again, config);
}

// Removes each key of each object in turn, and asks whether its name is in the message. Keys whose absence
// means something are left alone.
void expect_each_key_is_needed(const Json& whole, const Json& part, const Json::json_pointer& at) {
  if (part.is_array()) {
    for (std::size_t i = 0; i < part.size(); ++i) expect_each_key_is_needed(whole, part[i], at / i);
    return;
  }
  if (!part.is_object()) return;
  for (const auto& [key, value] : part.items()) {
    expect_each_key_is_needed(whole, value, at / key);
    if (key == "yarn" || key == "shared" || key == "query_latent_dim") continue;
    Json damaged = whole;
    damaged[at].erase(key);
    EXPECT_THAT(message_of(damaged), HasSubstr("'" + key + "' is missing")) << at.to_string();
  }
}

TEST(ConfigJson, WithoutAKeyIsRefusedByItsName) {
  for (const auto& [name, config] : configs()) {
    const Json json = config_to_json(config);
    expect_each_key_is_needed(json, json, Json::json_pointer());
  }
}

TEST(ConfigJson, NamesTheLayerThatIsWrong) {
  Json json = config_to_json(tiny_qwen_config());
  json["layers"][1]["mixer"]["kv_heads"] = 0;
  EXPECT_THAT(message_of(json), HasSubstr("manifest: config: layer 1: mixer: 'kv_heads' must be "));
}

struct Damage {
  const char* at;  // a JSON pointer
  Json value;
  const char* message;
};

void expect_refused(const ModelConfig& config, const std::vector<Damage>& damages) {
  for (const Damage& damage : damages) {
    Json json = config_to_json(config);
    json[Json::json_pointer(damage.at)] = damage.value;
    EXPECT_THAT(message_of(json), HasSubstr(damage.message)) << damage.at << " = " << damage.value;
  }
}

TEST(ConfigJson, OfAModelThatCannotRunIsRefused) {
  expect_refused(tiny_qwen_config(),
                 {{"/family", "llama", "unknown kind 'llama'"},
                  {"/dim", 0, "'dim' must be a whole number from 1 to 4194304, found 0"},
                  {"/dim", kMaxDim + 1, "found 4194305"},
                  {"/dim", 64.0, "found 64.0"},
                  {"/dim", "64", "found \"64\""},
                  {"/vocabulary", -1, "'vocabulary' must be "},
                  {"/max_positions", std::uint64_t{1} << 40, "'max_positions' must be "},
                  {"/norm_eps", 0, "'norm_eps' must be a number from 1e-12 to 1"},
                  {"/tied_embeddings", 1, "'tied_embeddings' must be true or false"},
                  {"/end_tokens", 1, "'end_tokens' must be an array"},
                  {"/end_tokens", {96}, "'end_tokens' must be ids below vocabulary"},
                  {"/end_tokens", {-1}, "'end_tokens' must be ids below vocabulary"},
                  {"/layers", Json::array(), "'layers' must be an array of 1 to 1024 layers"},
                  {"/layers", Json(std::vector<int>(1025, 1)), "an array of 1025"},
                  {"/layers/0", 7, "layer 0: expected an object, found 7"}});
}

TEST(ConfigJson, OfAMixerThatCannotRunIsRefused) {
  expect_refused(tiny_qwen_config(),
                 {{"/layers/0/mixer/kind", "mamba", "unknown kind 'mamba'"},
                  {"/layers/0/mixer/value_heads", 3, "'value_heads' must be a multiple of key_heads"},
                  {"/layers/0/mixer/value_head_dim", 65537, "'value_head_dim' must be "},
                  {"/layers/0/mixer/key_head_dim", 65536, "no error"},
                  {"/layers/0/mixer/conv_width", 65, "'conv_width' must be a whole number from 1 to 64"},
                  {"/layers/1/mixer/kv_heads", 3, "'query_heads' must be a multiple of kv_heads"},
                  {"/layers/1/mixer/query_heads", 65536, "no error"},
                  {"/layers/1/mixer/rope/dims", 7, "'dims' must be an even number"},
                  {"/layers/1/mixer/rope/dims", 34, "'dims' must be a whole number from 2 to 32"},
                  {"/layers/1/mixer/rope/theta", 0.5, "'theta' must be a number from 1 to 1e+12"},
                  {"/layers/1/mixer/rope/interleaved", "no", "'interleaved' must be true or false"}});
  expect_refused(tiny_deepseek_config(),
                 {{"/layers/0/mixer/rope/dims", 8, "'rope_dim' must be as wide as its rope"},
                  {"/layers/0/mixer/heads", 65536, "so that all heads together are at most 4194304 wide"},
                  {"/layers/0/mixer/query_latent_dim", 0, "'query_latent_dim' must be "},
                  {"/layers/0/mixer/latent_dim", kMaxDim, "'latent_dim' must be "},
                  {"/layers/0/mixer/rope/yarn/factor", 0.5, "yarn: 'factor' must be "},
                  {"/layers/0/mixer/rope/yarn/original_positions", 0, "'original_positions' must be "},
                  {"/layers/0/mixer/rope/yarn", 40, "'yarn' must be an object"}});
}

TEST(ConfigJson, WithHeadsThatAreTooWideTogetherIsRefused) {
  Json json = config_to_json(tiny_qwen_config());
  json["layers"][0]["mixer"]["key_heads"] = 2;
  json["layers"][0]["mixer"]["value_heads"] = 65536;
  json["layers"][0]["mixer"]["value_head_dim"] = 65536;
  EXPECT_THAT(message_of(json), HasSubstr("so that all heads together are at most 4194304 wide"));
  json = config_to_json(tiny_qwen_config());
  json["layers"][1]["mixer"]["query_heads"] = 65536;
  json["layers"][1]["mixer"]["head_dim"] = 65536;
  EXPECT_THAT(message_of(json), HasSubstr("so that all heads together are at most 4194304 wide"));
}

TEST(ConfigJson, OfAnMlpThatCannotRunIsRefused) {
  expect_refused(
      tiny_deepseek_config(),
      {{"/layers/0/mlp/hidden_dim", 0, "layer 0: mlp: 'hidden_dim' must be "},
       {"/layers/1/mlp/kind", "sparse", "unknown kind 'sparse'"},
       {"/layers/1/mlp/experts", 65537, "'experts' must be a whole number from 1 to 65536"},
       {"/layers/1/mlp/experts_per_token", 5, "'experts_per_token' must be a whole number from 1 to 4"},
       {"/layers/1/mlp/router/kind", "random", "unknown kind 'random'"},
       {"/layers/1/mlp/router/groups", 3, "'groups' must be a divisor of the experts"},
       {"/layers/1/mlp/router/groups", 4, "that leaves two or more in a group"},
       {"/layers/1/mlp/router/groups_kept", 3, "'groups_kept' must be a whole number from 1 to 2"},
       {"/layers/1/mlp/experts_per_token", 3, "'groups_kept' must be enough groups for experts_per_token"},
       {"/layers/1/mlp/router/scale", 0, "'scale' must be "},
       {"/layers/1/mlp/shared", 64, "'shared' must be an object"},
       {"/layers/1/mlp/shared/gated", 0, "'gated' must be true or false"}});
}

}  // namespace
}  // namespace moeflux
