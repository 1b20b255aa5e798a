// Compares with the ids of the reference, recorded by tests/text/tokenizer_oracle_test.py --record, and with
// the goldens of Tern. Needs only the repository.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(std::string(MOEFLUX_REPOSITORY "/") + path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  EXPECT_TRUE(file.good()) << path;
  return content.str();
}

nlohmann::ordered_json json_of(const std::string& path) {
  return nlohmann::ordered_json::parse(content_of(path));
}

Tokenizer tokenizer_of(const std::string& json) {
  Result<Tokenizer> tokenizer = Tokenizer::parse(json, "tokenizer.json");
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message());
  return *std::move(tokenizer);
}

std::vector<std::uint32_t> ids_of(const Tokenizer& tokenizer, const std::string& text, AddedTokens added) {
  std::vector<TokenId> tokens;
  const Status status = tokenizer.encode(text, added, tokens);
  EXPECT_TRUE(status.has_value()) << status.error().message();
  std::vector<std::uint32_t> ids;
  for (const TokenId token : tokens) ids.push_back(token.index());
  return ids;
}

using Ids = std::vector<std::uint32_t>;

TEST(TokenizerRecorded, EncodesAndDecodesTheGoldensOfTern) {
  const Tokenizer tokenizer = tokenizer_of(content_of("models/tern/tokenizer.json"));
  const auto cases = json_of("tests/goldens/tern/golden_tokenizer.json");
  ASSERT_GT(cases.size(), 5u);
  for (const auto& golden : cases) {
    const auto text = golden["text"].get<std::string>();
    const auto ids = golden["ids"].get<Ids>();
    EXPECT_EQ(ids_of(tokenizer, text, AddedTokens::all), ids) << text;
    std::vector<TokenId> tokens;
    for (const std::uint32_t id : ids) tokens.push_back(TokenId{id});
    EXPECT_EQ(tokenizer.decode(tokens, false), golden["decoded"].get<std::string>());
  }
}

TEST(TokenizerRecorded, EncodesTheChatPromptsOfTern) {
  const Tokenizer tokenizer = tokenizer_of(content_of("models/tern/tokenizer.json"));
  const auto cases = json_of("tests/goldens/tern/golden_chat.json");
  ASSERT_GT(cases.size(), 2u);
  for (const auto& golden : cases) {
    EXPECT_EQ(ids_of(tokenizer, golden["prompt"].get<std::string>(), AddedTokens::all),
              golden["prompt_ids"].get<Ids>());
    std::vector<TokenId> reply;
    for (const std::uint32_t id : golden["greedy_ids"].get<Ids>()) reply.push_back(TokenId{id});
    EXPECT_EQ(tokenizer.decode(reply, true), golden["reply"].get<std::string>());
  }
}

class RecordedVocabulary : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(RecordedVocabulary, MatchesTheIdsOfTheReference) {
  const auto& [name, path] = GetParam();
  const Tokenizer tokenizer = tokenizer_of(content_of(path));
  const auto cases = json_of(fmt::format("tests/goldens/tokenizer/{}.recorded.json", name));
  ASSERT_GE(cases.size(), 120u);
  for (const auto& recorded : cases) {
    const auto text = recorded["text"].get<std::string>();
    const auto all = recorded["all"].get<Ids>();
    const auto ordinary = recorded.contains("ordinary") ? recorded["ordinary"].get<Ids>() : all;
    EXPECT_EQ(ids_of(tokenizer, text, AddedTokens::all), all) << recorded;
    EXPECT_EQ(ids_of(tokenizer, text, AddedTokens::ordinary), ordinary) << recorded;
  }
}

INSTANTIATE_TEST_SUITE_P(TokenizerRecorded, RecordedVocabulary,
                         testing::Values(std::pair("tern", "models/tern/tokenizer.json"),
                                         std::pair("qwen3", "tests/goldens/tokenizer/qwen3.tokenizer.json"),
                                         std::pair("deepseek_v3",
                                                   "tests/goldens/tokenizer/deepseek_v3.tokenizer.json")),
                         [](const auto& test) { return std::string(test.param.first); });

// One small tokenizer per feature: tests/text/features.py.
TEST(TokenizerRecorded, SupportsEveryFeature) {
  const auto file = json_of("tests/goldens/tokenizer/features.json");
  ASSERT_GT(file["cases"].size(), 80u);
  for (const auto& recorded : file["cases"]) {
    auto json = file["base"];
    for (const auto& [section, value] : recorded["sections"].items()) {
      if (section == "model") {
        json["model"].update(value);
      } else {
        json[section] = value;
      }
    }
    SCOPED_TRACE(recorded["name"].get<std::string>());
    Result<Tokenizer> tokenizer = Tokenizer::parse(json.dump(), "tokenizer.json");
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
    const auto& texts = recorded.contains("texts") ? recorded["texts"] : file["texts"];
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      EXPECT_EQ(ids_of(*tokenizer, text, AddedTokens::all), recorded["all"][i].get<Ids>()) << texts[i];
      const auto& ordinary = recorded.contains("ordinary") ? recorded["ordinary"] : recorded["all"];
      EXPECT_EQ(ids_of(*tokenizer, text, AddedTokens::ordinary), ordinary[i].get<Ids>()) << texts[i];
    }
  }
}

}  // namespace
}  // namespace moeflux
