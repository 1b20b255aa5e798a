// tokenizer.json files that are corrupt, unsupported or malicious: each is refused with a message that states
// why.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/sizes.h"
#include "base/testing/states.h"
#include "text/tokenizer/testing/small_tokenizer.h"
#include "text/tokenizer/tokenizer_json.h"

namespace moeflux {
namespace {

using test::States;
using Facts = std::vector<std::string>;

void expect_refusal(const std::string& text, ErrorCode code, const Facts& facts) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(text, "m/tokenizer.json");
  ASSERT_FALSE(tokenizer.has_value()) << facts.front();
  EXPECT_EQ(tokenizer.error().code(), code) << tokenizer.error().message();
  for (const std::string& fact : facts) EXPECT_THAT(tokenizer, States(fact));
  EXPECT_THAT(tokenizer.error().message(), testing::StartsWith("m/tokenizer.json"));
}

struct Change {
  const char* name;
  std::function<void(TestJson&)> apply;
  ErrorCode code;
  Facts facts;
};

TEST(TokenizerHostile, RejectsWhatIsNotATokenizer) {
  constexpr ErrorCode kCorrupt = ErrorCode::corrupt_data;
  expect_refusal("", kCorrupt, {"JSON"});
  expect_refusal("[]", kCorrupt, {"object"});
  expect_refusal("{}", kCorrupt, {"'model.vocab'", "missing"});
  expect_refusal("{\"model\":{\"vocab\":{}}}", kCorrupt, {"'model.merges'", "missing"});
  expect_refusal("{\"model\":{\"vocab\":[],\"merges\":[]}}", kCorrupt, {"'model.vocab'", "object"});
  expect_refusal("{\"model\":[{\"vocab\":{}}]}", kCorrupt, {"'model.vocab'", "missing"});
  expect_refusal("{\"model\":{\"vocab\":{\"a\":\"b\"}}}", kCorrupt, {"id", "'a'"});
  expect_refusal("{\"model\":{\"vocab\":{\"a\":-1}}}", kCorrupt, {"id", "'a'"});
  expect_refusal("{\"model\":{\"vocab\":{\"a\":{}}}}", kCorrupt, {"id", "'a'", "an object"});
  expect_refusal("{\"model\":{\"vocab\":{\"a\":1,\"a\":2}}}", kCorrupt, {"token 'a'", "twice"});
  expect_refusal("{\"model\":{\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", kCorrupt, {"id 1", "token 'b'"});
  expect_refusal("{\"model\":{\"vocab\":{\"a\":4194304}}}", ErrorCode::unsupported, {"id 4194304"});
  expect_refusal("{\"model\":{\"vocab\":{},\"vocab\":{}}}", kCorrupt, {"duplicate", "'vocab'"});
  expect_refusal("{\"model\":{},\"model\":{}}", kCorrupt, {"duplicate", "'model'"});
  expect_refusal("{\"model\":{\"vocab\":{\"a\":1,\"b\":2},\"merges\":[\"a b\"]}}", kCorrupt,
                 {"merge 0", "'ab'", "vocabulary"});
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[\"a b\"]}}", kCorrupt, {"merge 0", "'a'"});
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[\"a b c\"]}}", kCorrupt, {"two tokens"});
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[\"ab\"]}}", kCorrupt, {"two tokens"});
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[[\"a\"]]}}", kCorrupt, {"two tokens"});
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[[\"a\",\"b\",\"c\"]]}}", kCorrupt, {"two tokens"});
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[[[\"a\",\"b\"]]]}}", kCorrupt, {"tokens", "an array"});
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[5]}}", kCorrupt, {"tokens"});
  expect_refusal("{\"model\":{\"vocab\":{\"\xFF\":1}}}", kCorrupt, {"JSON"});
  expect_refusal(std::string("{\"model\"\0:1}", 12), kCorrupt, {"JSON", "NUL"});
}

TEST(TokenizerHostile, RejectsWhatExceedsALimit) {
  constexpr ErrorCode kTooMuch = ErrorCode::unsupported;
  expect_refusal(std::string(kMaxTokenizerBytes + 1, ' '), kTooMuch,
                 {with_thousands(kMaxTokenizerBytes + 1), with_thousands(kMaxTokenizerBytes)});
  expect_refusal("{\"a\":\"" + std::string(2 << 20, 'x') + "\"}", kTooMuch, {"string", "bytes"});
  expect_refusal("{\"a\":" + std::string(40, '['), kTooMuch, {"nested", "32"});
  std::string values = "{\"a\":[0";
  for (int i = 0; i < 600'000; ++i) values += ",0";
  expect_refusal(values, kTooMuch, {"values", "vocabulary"});
  std::string members = "{\"a\":{";
  for (int i = 0; i < 300; ++i) members += fmt::format("\"{}\":0,", i);
  expect_refusal(members, kTooMuch, {"object", "256 keys"});
}

constexpr ErrorCode kCorrupt = ErrorCode::corrupt_data, kUnsupported = ErrorCode::unsupported;

// Applies each change to a valid tokenizer.json and expects its refusal.
void expect_refusals(std::span<const Change> changes) {
  for (const Change& change : changes) {
    SCOPED_TRACE(change.name);
    TestJson json = small_tokenizer_json();
    change.apply(json);
    expect_refusal(json.dump(), change.code, change.facts);
  }
}

TEST(TokenizerHostile, RejectsUnsupportedModels) {
  const Change changes[] = {
      {"version", [](TestJson& j) { j["version"] = "2.0"; }, kUnsupported, {"version", "1.0"}},
      {"model type", [](TestJson& j) { j["model"]["type"] = "Unigram"; }, kUnsupported, {"'type'"}},
      {"dropout", [](TestJson& j) { j["model"]["dropout"] = 0.1; }, kUnsupported, {"'dropout'"}},
      {"prefix",
       [](TestJson& j) { j["model"]["continuing_subword_prefix"] = "##"; },
       kUnsupported,
       {"'continuing_subword_prefix'"}},
      {"suffix",
       [](TestJson& j) { j["model"]["end_of_word_suffix"] = "</w>"; },
       kUnsupported,
       {"'end_of_word_suffix'"}},
      {"fallback",
       [](TestJson& j) {
         j["model"]["byte_fallback"] = true;
         j["model"]["vocab"].erase("z");
       },
       kUnsupported,
       {"lacks 1", "256"}},
      {"unknown",
       [](TestJson& j) {
         j["model"]["unk_token"] = "<unk>";
         j["model"]["vocab"].erase("z");
       },
       kUnsupported,
       {"lacks 1", "256"}},
  };
  expect_refusals(changes);
}

TEST(TokenizerHostile, RejectsUnsupportedAndCorruptStages) {
  const auto split = [](const char* pattern) {
    return TestJson{
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
  };
  const Change changes[] = {
      {"no pre-tokenizer",
       [](TestJson& j) { j["pre_tokenizer"] = nullptr; },
       kUnsupported,
       {"pre_tokenizer", "ByteLevel", "last"}},
      {"Metaspace",
       [](TestJson& j) {
         j["pre_tokenizer"] = {{"type", "Metaspace"}};
       },
       kUnsupported,
       {"'Metaspace'", "not supported"}},
      {"order",
       [](TestJson& j) {
         j["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}};
       },
       kUnsupported,
       {"'Digits'", "ByteLevel"}},
      {"pattern",
       [&](TestJson& j) { j["pre_tokenizer"] = split("(a"); },
       kUnsupported,
       {"pre_tokenizer[0]", "'(?:a'", "compile"}},
      {"class", [&](TestJson& j) { j["pre_tokenizer"] = split("[a"); }, kCorrupt, {"'['", "']'"}},
      {"normalizer",
       [](TestJson& j) {
         j["normalizer"] = {{"type", "Lowercase"}};
       },
       kUnsupported,
       {"normalizer", "'Lowercase'"}},
      {"decoder",
       [](TestJson& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       },
       kUnsupported,
       {"decoder", "'WordPiece'"}},
      {"no decoder", [](TestJson& j) { j["decoder"] = nullptr; }, kCorrupt, {"decoder"}},
      {"post-processor",
       [](TestJson& j) {
         j["post_processor"] = {{"type", "BertProcessing"}};
       },
       kUnsupported,
       {"BertProcessing"}},
  };
  expect_refusals(changes);
}

TEST(TokenizerHostile, RejectsCorruptAddedTokens) {
  const Change changes[] = {
      {"added tokens", [](TestJson& j) { j["added_tokens"] = 5; }, kCorrupt, {"added_tokens", "array"}},
      {"a flag",
       [](TestJson& j) {
         j["added_tokens"] = TestJson::array({TestJson{{"id", 1}, {"content", "x"}}});
       },
       kCorrupt,
       {"added_tokens[0]", "'special'", "missing"}},
      {"an id",
       [](TestJson& j) { j["added_tokens"] = TestJson::array({added_token(4194304, "<e>")}); },
       kCorrupt,
       {"added_tokens[0]"}},
      {"ids",
       [](TestJson& j) {
         j["added_tokens"] = TestJson::array({added_token(300, "<e>"), added_token(300, "<f>")});
       },
       kCorrupt,
       {"id 300", "'<f>'"}},
      {"id of the vocabulary",
       [](TestJson& j) { j["added_tokens"] = TestJson::array({added_token(5, "<e>")}); },
       kCorrupt,
       {"id 5", "'<e>'"}},
      {"two ids",
       [](TestJson& j) { j["added_tokens"] = TestJson::array({added_token(300, "hell")}); },
       kCorrupt,
       {"'hell'", "300", "258"}},
      {"twice",
       [](TestJson& j) {
         j["added_tokens"] = TestJson::array({added_token(300, "<e>"), added_token(301, "<e>")});
       },
       kCorrupt,
       {"'<e>'", "twice"}},
      {"long",
       [](TestJson& j) { j["added_tokens"] = TestJson::array({added_token(300, std::string(2000, 'x'))}); },
       kUnsupported,
       {"2000 bytes"}},
  };
  expect_refusals(changes);
}

TEST(TokenizerHostile, FailsOnAPatternThatBacktracksForever) {
  TestJson json = small_tokenizer_json();
  json["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"},
                              {"pattern", {{"Regex", "(a+)+[bc]"}}},
                              {"behavior", "Isolated"},
                              {"invert", false}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  const Tokenizer tokenizer = parsed(json);
  std::vector<TokenId> tokens{TokenId{1}};
  const Status status = tokenizer.encode("aab " + std::string(60, 'a'), AddedTokens::all, tokens);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(status, States("match limit"));
  EXPECT_EQ(tokens.size(), 1u);  // nothing was appended
}

TEST(TokenizerHostile, AcceptsFallbacksThatAreNeverNeeded) {
  TestJson json = small_tokenizer_json();
  json["model"]["unk_token"] = "<unk>";
  json["model"]["byte_fallback"] = true;
  EXPECT_TRUE(Tokenizer::parse(json.dump(), "m").has_value());
}

}  // namespace
}  // namespace moeflux
