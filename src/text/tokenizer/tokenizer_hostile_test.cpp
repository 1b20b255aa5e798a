// tokenizer.json files that are broken, unsupported or meant to harm: each is refused with a message that says why.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "text/testing/small_tokenizer.h"
#include "text/tokenizer_json.h"

namespace moeflux {
namespace {

using testing::HasSubstr;

void expect_refusal(const std::string& text, ErrorCode code, const std::string& why) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(text, "m/tokenizer.json");
  ASSERT_FALSE(tokenizer.has_value()) << why;
  EXPECT_EQ(tokenizer.error().code(), code) << tokenizer.error().message();
  EXPECT_THAT(tokenizer.error().message(), HasSubstr(why));
  EXPECT_THAT(tokenizer.error().message(), testing::StartsWith("m/tokenizer.json"));
}

struct Change {
  const char* name;
  std::function<void(TestJson&)> apply;
  ErrorCode code;
  const char* why;
};

TEST(TokenizerHostile, RefusesWhatIsNoTokenizer) {
  constexpr ErrorCode kCorrupt = ErrorCode::corrupt_data;
  expect_refusal("", kCorrupt, "not valid JSON");
  expect_refusal("[]", kCorrupt, "expected an object");
  expect_refusal("{}", kCorrupt, "'model.vocab' is missing");
  expect_refusal("{\"model\":{\"vocab\":{}}}", kCorrupt, "'model.merges' is missing");
  expect_refusal("{\"model\":{\"vocab\":[],\"merges\":[]}}", kCorrupt,
                 "'model.vocab' is missing or is not an object");
  expect_refusal("{\"model\":[{\"vocab\":{}}]}", kCorrupt, "'model.vocab' is missing");
  expect_refusal("{\"model\":{\"vocab\":{\"a\":\"b\"}}}", kCorrupt, "expected an id for 'a'");
  expect_refusal("{\"model\":{\"vocab\":{\"a\":-1}}}", kCorrupt, "expected an id for 'a'");
  expect_refusal("{\"model\":{\"vocab\":{\"a\":{}}}}", kCorrupt, "expected an id for 'a', found an object");
  expect_refusal("{\"model\":{\"vocab\":{\"a\":1,\"a\":2}}}", kCorrupt, "the token 'a' is there twice");
  expect_refusal("{\"model\":{\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", kCorrupt,
                 "the id 1 of the token 'b'");
  expect_refusal("{\"model\":{\"vocab\":{\"a\":4194304}}}", ErrorCode::unsupported, "has the id 4194304");
  expect_refusal("{\"model\":{\"vocab\":{},\"vocab\":{}}}", kCorrupt, "duplicate key 'vocab'");
  expect_refusal("{\"model\":{},\"model\":{}}", kCorrupt, "duplicate key 'model'");
  expect_refusal("{\"model\":{\"vocab\":{\"a\":1,\"b\":2},\"merges\":[\"a b\"]}}", kCorrupt,
                 "names 'ab', which is not in");
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[\"a b\"]}}", kCorrupt, "merge 0 names 'a'");
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[\"a b c\"]}}", kCorrupt, "must be two tokens");
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[\"ab\"]}}", kCorrupt, "must be two tokens");
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[[\"a\"]]}}", kCorrupt, "a pair of two tokens");
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[[\"a\",\"b\",\"c\"]]}}", kCorrupt,
                 "a pair of two tokens");
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[[[\"a\",\"b\"]]]}}", kCorrupt,
                 "expected tokens, found an array");
  expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[5]}}", kCorrupt, "expected tokens");
  expect_refusal("{\"model\":{\"vocab\":{\"\xFF\":1}}}", kCorrupt, "not valid JSON");
  expect_refusal(std::string("{\"model\"\0:1}", 12), kCorrupt, "NUL");
}

TEST(TokenizerHostile, RefusesWhatIsTooMuch) {
  constexpr ErrorCode kTooMuch = ErrorCode::unsupported;
  expect_refusal(std::string(kMaxTokenizerBytes + 1, ' '), kTooMuch, "bytes, expected at most");
  expect_refusal("{\"a\":\"" + std::string(2 << 20, 'x') + "\"}", kTooMuch,
                 "a string, number or space of more than");
  expect_refusal("{\"a\":" + std::string(40, '['), kTooMuch, "nested deeper than 32");
  std::string values = "{\"a\":[0";
  for (int i = 0; i < 600'000; ++i) values += ",0";
  expect_refusal(values, kTooMuch, "values outside of vocabulary and merges");
  std::string members = "{\"a\":{";
  for (int i = 0; i < 300; ++i) members += fmt::format("\"{}\":0,", i);
  expect_refusal(members, kTooMuch, "an object with more than 256 keys");
}

TEST(TokenizerHostile, RefusesSectionsThatItDoesNotKnow) {
  constexpr ErrorCode kCorrupt = ErrorCode::corrupt_data, kUnsupported = ErrorCode::unsupported;
  const auto split = [](const char* pattern) {
    return TestJson{
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
  };
  const Change changes[] = {
      {"version", [](TestJson& j) { j["version"] = "2.0"; }, kUnsupported, "expected version 1.0"},
      {"model type", [](TestJson& j) { j["model"]["type"] = "Unigram"; }, kUnsupported, "'type'"},
      {"dropout", [](TestJson& j) { j["model"]["dropout"] = 0.1; }, kUnsupported, "'dropout'"},
      {"prefix", [](TestJson& j) { j["model"]["continuing_subword_prefix"] = "##"; }, kUnsupported,
       "continuing_subword"},
      {"suffix", [](TestJson& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, kUnsupported,
       "'end_of_word_suffix'"},
      {"fallback",
       [](TestJson& j) {
         j["model"]["byte_fallback"] = true;
         j["model"]["vocab"].erase("z");
       },
       kUnsupported, "lacks 1 of the 256"},
      {"unknown",
       [](TestJson& j) {
         j["model"]["unk_token"] = "<unk>";
         j["model"]["vocab"].erase("z");
       },
       kUnsupported, "lacks 1 of the 256"},
      {"no pre-tokenizer", [](TestJson& j) { j["pre_tokenizer"] = nullptr; }, kUnsupported,
       "expected ByteLevel as the last step"},
      {"Metaspace",
       [](TestJson& j) {
         j["pre_tokenizer"] = {{"type", "Metaspace"}};
       },
       kUnsupported, "'Metaspace' is not supported"},
      {"order",
       [](TestJson& j) {
         j["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}};
       },
       kUnsupported, "'Digits' after ByteLevel"},
      {"pattern", [&](TestJson& j) { j["pre_tokenizer"] = split("(a"); }, kUnsupported,
       "pre_tokenizer[0]: the pattern '(?:a' does not compile"},
      {"class", [&](TestJson& j) { j["pre_tokenizer"] = split("[a"); }, kCorrupt,
       "has a '[' without its ']'"},
      {"normalizer",
       [](TestJson& j) {
         j["normalizer"] = {{"type", "Lowercase"}};
       },
       kUnsupported, "normalizer: the type 'Lowercase'"},
      {"decoder",
       [](TestJson& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       },
       kUnsupported, "decoder: the type 'WordPiece'"},
      {"no decoder", [](TestJson& j) { j["decoder"] = nullptr; }, kCorrupt, "decoder"},
      {"post-processor",
       [](TestJson& j) {
         j["post_processor"] = {{"type", "BertProcessing"}};
       },
       kUnsupported, "BertProcessing"},
      {"added tokens", [](TestJson& j) { j["added_tokens"] = 5; }, kCorrupt,
       "added_tokens: expected an array"},
      {"a flag",
       [](TestJson& j) {
         j["added_tokens"] = TestJson::array({TestJson{{"id", 1}, {"content", "x"}}});
       },
       kCorrupt, "added_tokens[0]: 'special' is missing"},
      {"an id", [](TestJson& j) { j["added_tokens"] = TestJson::array({added_token(4194304, "<e>")}); },
       kCorrupt, "added_tokens[0]"},
      {"ids",
       [](TestJson& j) {
         j["added_tokens"] = TestJson::array({added_token(300, "<e>"), added_token(300, "<f>")});
       },
       kCorrupt, "the id 300 of the added token '<f>'"},
      {"id of the vocabulary",
       [](TestJson& j) { j["added_tokens"] = TestJson::array({added_token(5, "<e>")}); }, kCorrupt,
       "the id 5 of the added token '<e>'"},
      {"two ids", [](TestJson& j) { j["added_tokens"] = TestJson::array({added_token(300, "hell")}); },
       kCorrupt, "has the id 300, and 258 in the vocabulary"},
      {"twice",
       [](TestJson& j) {
         j["added_tokens"] = TestJson::array({added_token(300, "<e>"), added_token(301, "<e>")});
       },
       kCorrupt, "'<e>' is there twice"},
      {"long",
       [](TestJson& j) { j["added_tokens"] = TestJson::array({added_token(300, std::string(2000, 'x'))}); },
       kUnsupported, "a content of 2000 bytes"},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(change.name);
    TestJson json = small_tokenizer_json();
    change.apply(json);
    expect_refusal(json.dump(), change.code, change.why);
  }
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
  EXPECT_THAT(status.error().message(), HasSubstr("match limit"));
  EXPECT_EQ(tokens.size(), 1u);  // nothing was appended
}

TEST(TokenizerHostile, AcceptsFallbacksThatCanNeverBeNeeded) {
  TestJson json = small_tokenizer_json();
  json["model"]["unk_token"] = "<unk>";
  json["model"]["byte_fallback"] = true;
  EXPECT_TRUE(Tokenizer::parse(json.dump(), "m").has_value());
}

}  // namespace
}  // namespace moeflux
