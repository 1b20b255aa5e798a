#include "model/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/testing/states.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

using test::States;

Result<ModelConfig> read(const Json& json) {
  // Goes through text, so that numbers have the types that the parser gives them.
  auto document = parse_json(json.dump(), "manifest");
  EXPECT_TRUE(document) << document.error().message();
  return config_from_json(*document, "manifest: config");
}

std::string message_of(const Json& json) {
  const auto config = read(json);
  return config ? "no error" : config.error().message();
}

// Configs in which every optional part is present at least once and absent at least once.
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

TEST(ConfigJson, RoundTrips) {
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

// Removes each required key of each object in turn, and expects its name in the message.
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
    EXPECT_THAT(message_of(damaged), States("'" + key + "'", "missing")) << at.to_string();
  }
}

TEST(ConfigJson, NamesAMissingKey) {
  for (const auto& [name, config] : configs()) {
    const Json json = config_to_json(config);
    expect_each_key_is_needed(json, json, Json::json_pointer());
  }
}

TEST(ConfigJson, NamesTheLayerThatIsWrong) {
  Json json = config_to_json(tiny_qwen_config());
  json["layers"][1]["mixer"]["kv_heads"] = 0;
  EXPECT_THAT(message_of(json), States("manifest", "layer 1", "mixer", "'kv_heads'", 0));
}

struct Damage {
  const char* at;  // a JSON pointer
  Json value;
  std::vector<std::string> facts;
};

void expect_refused(const ModelConfig& config, const std::vector<Damage>& damages) {
  for (const Damage& damage : damages) {
    Json json = config_to_json(config);
    json[Json::json_pointer(damage.at)] = damage.value;
    EXPECT_THAT(message_of(json), testing::MakePolymorphicMatcher(test::StatesMatcher(damage.facts)))
        << damage.at << " = " << damage.value;
  }
}

TEST(ConfigJson, RejectsAModelThatCannotRun) {
  expect_refused(tiny_qwen_config(), {{"/family", "llama", {"'llama'", "unknown"}},
                                      {"/dim", 0, {"'dim'", "1", "4194304", "0", "number"}},
                                      {"/dim", kMaxDim + 1, {"4194305"}},
                                      {"/dim", 64.0, {"64.0"}},
                                      {"/dim", "64", {"\"64\""}},
                                      {"/vocabulary", -1, {"'vocabulary'", "-1"}},
                                      {"/max_positions", std::uint64_t{1} << 40, {"'max_positions'"}},
                                      {"/norm_eps", 0, {"'norm_eps'", "1e-12", "1", "number"}},
                                      {"/tied_embeddings", 1, {"'tied_embeddings'", "true", "false"}},
                                      {"/end_tokens", 1, {"'end_tokens'", "array"}},
                                      {"/end_tokens", {96}, {"'end_tokens'", "vocabulary"}},
                                      {"/end_tokens", {-1}, {"'end_tokens'", "vocabulary"}},
                                      {"/layers", Json::array(), {"'layers'", "1", "1024", "array"}},
                                      {"/layers", Json(std::vector<int>(1025, 1)), {"1025", "array"}},
                                      {"/layers/0", 7, {"layer 0", "7", "object"}}});
}

TEST(ConfigJson, RejectsAMixerThatCannotRun) {
  expect_refused(tiny_qwen_config(),
                 {{"/layers/0/mixer/kind", "mamba", {"'mamba'", "unknown"}},
                  {"/layers/0/mixer/value_heads", 3, {"'value_heads'", "key_heads"}},
                  {"/layers/0/mixer/value_head_dim", 65537, {"'value_head_dim'"}},
                  {"/layers/0/mixer/key_head_dim", 65536, {"no error"}},
                  {"/layers/0/mixer/conv_width", 65, {"'conv_width'", "1", "64", "number"}},
                  {"/layers/1/mixer/kv_heads", 3, {"'query_heads'", "kv_heads"}},
                  {"/layers/1/mixer/query_heads", 65536, {"no error"}},
                  {"/layers/1/mixer/rope/dims", 7, {"'dims'", "even", "7"}},
                  {"/layers/1/mixer/rope/dims", 34, {"'dims'", "2", "32", "number"}},
                  {"/layers/1/mixer/rope/theta", 0.5, {"'theta'", "1", "1e+12", "number"}},
                  {"/layers/1/mixer/rope/interleaved", "no", {"'interleaved'", "true", "false"}}});
  expect_refused(tiny_deepseek_config(),
                 {{"/layers/0/mixer/rope/dims", 8, {"'rope_dim'", "16"}},
                  {"/layers/0/mixer/heads", 65536, {"'heads'", "4194304", "65536"}},
                  {"/layers/0/mixer/query_latent_dim", 0, {"'query_latent_dim'"}},
                  {"/layers/0/mixer/latent_dim", kMaxDim, {"'latent_dim'"}},
                  {"/layers/0/mixer/rope/yarn/factor", 0.5, {"yarn", "'factor'", "0.5"}},
                  {"/layers/0/mixer/rope/yarn/original_positions", 0, {"'original_positions'"}},
                  {"/layers/0/mixer/rope/yarn", 40, {"'yarn'", "object"}}});
}

TEST(ConfigJson, RejectsHeadsThatAreTooWideTogether) {
  Json json = config_to_json(tiny_qwen_config());
  json["layers"][0]["mixer"]["key_heads"] = 2;
  json["layers"][0]["mixer"]["value_heads"] = 65536;
  json["layers"][0]["mixer"]["value_head_dim"] = 65536;
  EXPECT_THAT(message_of(json), States("heads", 4194304));
  json = config_to_json(tiny_qwen_config());
  json["layers"][1]["mixer"]["query_heads"] = 65536;
  json["layers"][1]["mixer"]["head_dim"] = 65536;
  EXPECT_THAT(message_of(json), States("heads", 4194304));
}

TEST(ConfigJson, RejectsAnMlpThatCannotRun) {
  expect_refused(tiny_deepseek_config(),
                 {{"/layers/0/mlp/hidden_dim", 0, {"layer 0", "'hidden_dim'"}},
                  {"/layers/1/mlp/kind", "sparse", {"'sparse'", "unknown"}},
                  {"/layers/1/mlp/experts", 65537, {"'experts'", "1", "65536", "number"}},
                  {"/layers/1/mlp/experts_per_token", 5, {"'experts_per_token'", "1", "4", "number"}},
                  {"/layers/1/mlp/router/kind", "random", {"'random'", "unknown"}},
                  {"/layers/1/mlp/router/groups", 3, {"'groups'", "divisor", "3"}},
                  {"/layers/1/mlp/router/groups", 4, {"'groups'", "4", "two"}},
                  {"/layers/1/mlp/router/groups_kept", 3, {"'groups_kept'", "1", "2", "number"}},
                  {"/layers/1/mlp/experts_per_token", 3, {"'groups_kept'", "experts_per_token"}},
                  {"/layers/1/mlp/router/scale", 0, {"'scale'"}},
                  {"/layers/1/mlp/shared", 64, {"'shared'", "object"}},
                  {"/layers/1/mlp/shared/gated", 0, {"'gated'", "true", "false"}}});
}

}  // namespace
}  // namespace moeflux
