#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "base/testing/expect_contract.h"
#include "text/tokenizer/testing/small_tokenizer.h"

namespace moeflux {
namespace {

using Ids = std::vector<std::uint32_t>;

Ids encoded(const Tokenizer& tokenizer, std::string_view text, AddedTokens added = AddedTokens::all) {
  std::vector<TokenId> tokens;
  const Status status = tokenizer.encode(text, added, tokens);
  EXPECT_TRUE(status.has_value()) << status.error().message();
  return indices(tokens);
}

Ids encoded(const Tokenizer& tokenizer, std::string_view text, const std::vector<TextRange>& data) {
  std::vector<TokenId> tokens;
  const Status status = tokenizer.encode(text, data, tokens);
  EXPECT_TRUE(status.has_value()) << status.error().message();
  return indices(tokens);
}

Tokenizer tern() {
  std::ifstream file(MOEFLUX_REPOSITORY "/models/tern/tokenizer.json", std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  Result<Tokenizer> tokenizer = Tokenizer::parse(content.str(), "models/tern/tokenizer.json");
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message());
  return *std::move(tokenizer);
}

TestJson with_added(const TestJson& tokens) {
  TestJson json = small_tokenizer_json();
  json["added_tokens"] = tokens;
  return json;
}

TEST(Tokenizer, FindsItsTokens) {
  const Tokenizer tokenizer =
      parsed(with_added({added_token(300, "<|end|>", true), added_token(302, "<think>")}));
  EXPECT_EQ(tokenizer.vocabulary_size(), 303u);
  EXPECT_EQ(tokenizer.find("<|end|>"), TokenId{300});
  EXPECT_EQ(tokenizer.find("hell"), TokenId{258});
  EXPECT_EQ(tokenizer.find("\u0120"), TokenId{' '});
  EXPECT_EQ(tokenizer.find("nobody"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(TokenId{300}) && tokenizer.is_added(TokenId{300}));
  EXPECT_TRUE(!tokenizer.is_special(TokenId{302}) && tokenizer.is_added(TokenId{302}));
  EXPECT_TRUE(!tokenizer.is_added(TokenId{301}) && !tokenizer.is_added(TokenId{9999}));
  EXPECT_EQ(tokenizer.token_bytes()[TokenId{258}], "hell");
  EXPECT_EQ(tokenizer.token_bytes()[TokenId{0xFF}], "\xFF");
  EXPECT_EQ(tokenizer.token_bytes()[TokenId{301}], "");
  EXPECT_EQ(tokenizer.token_bytes()[TokenId{302}], "<think>");
}

TEST(Tokenizer, FindsTheRequestedAddedTokens) {
  const Tokenizer tokenizer = parsed(with_added({added_token(300, "<e>", true), added_token(301, "<t>")}));
  EXPECT_EQ(encoded(tokenizer, "<e><t>"), (Ids{300, 301}));
  EXPECT_EQ(encoded(tokenizer, "<e><t>", AddedTokens::ordinary), (Ids{'<', 'e', '>', 301}));
  EXPECT_EQ(encoded(tokenizer, "<e><t>", AddedTokens::none), (Ids{'<', 'e', '>', '<', 't', '>'}));
}

TEST(Tokenizer, AppendsToTheOutput) {
  const Tokenizer tokenizer = parsed(small_tokenizer_json());
  std::vector<TokenId> tokens{TokenId{5}};
  ASSERT_TRUE(tokenizer.encode("a", AddedTokens::all, tokens).has_value());
  EXPECT_EQ(indices(tokens), (Ids{5, 'a'}));
}

TEST(Tokenizer, ReadsMergesInBothForms) {
  TestJson json = small_tokenizer_json();
  json["model"]["merges"] = {"#version: 0.2", "h e", "l l", "he ll", "a a"};
  EXPECT_EQ(encoded(parsed(json), "hell"), (Ids{258}));
  EXPECT_EQ(encoded(parsed(small_tokenizer_json()), "hell"), (Ids{258}));
}

TEST(Tokenizer, ReadsVocabularyAndMergesInAnyOrder) {
  TestJson json = small_tokenizer_json(), turned = TestJson::object();
  turned["merges"] = json["model"]["merges"];
  turned["vocab"] = json["model"]["vocab"];
  turned["type"] = "BPE";
  json["model"] = turned;
  EXPECT_EQ(encoded(parsed(json), "hell"), (Ids{258}));
}

TEST(Tokenizer, UsesAWholeTokenIfMergesAreIgnored) {
  TestJson json = small_tokenizer_json();
  json["model"]["vocab"]["xyz\u0120"] = 400;
  EXPECT_EQ(encoded(parsed(json), "xyz "), (Ids{'x', 'y', 'z', ' '}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(encoded(parsed(json), "xyz "), (Ids{400}));
  EXPECT_EQ(encoded(parsed(json), "xyz hell"), (Ids{'x', 'y', 'z', ' ', 258}));
}

TEST(Tokenizer, ReplacesBytesThatAreNotUtf8) {
  const Tokenizer tokenizer = parsed(small_tokenizer_json());
  EXPECT_EQ(encoded(tokenizer, "a\xC3z\xFF"), encoded(tokenizer, "a\uFFFDz\uFFFD"));
}

TEST(Tokenizer, ReportsTheTokensOfThePostProcessor) {
  TestJson json = with_added({added_token(300, "<s>", true), added_token(301, "</s>", true)});
  const auto special = [](const char* name) {
    return TestJson{{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
  };
  const TestJson text{{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const TestJson processor{
      {"type", "TemplateProcessing"},
      {"single", {special("<s>"), text, special("</s>")}},
      {"pair", TestJson::array()},
      {"special_tokens",
       {{"<s>", {{"id", "<s>"}, {"ids", {300}}}}, {"</s>", {{"id", "</s>"}, {"ids", {301, 300}}}}}}};
  json["post_processor"] = {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, processor}}};
  const Tokenizer tokenizer = parsed(json);
  EXPECT_EQ(indices({tokenizer.begin_tokens().begin(), tokenizer.begin_tokens().end()}), (Ids{300}));
  EXPECT_EQ(indices({tokenizer.end_tokens().begin(), tokenizer.end_tokens().end()}), (Ids{301, 300}));
  EXPECT_EQ(encoded(tokenizer, "a"), (Ids{'a'}));
}

TEST(TokenizerData, FindsNoAddedTokenThatTouchesData) {
  const Tokenizer tokenizer = parsed(with_added({added_token(300, "<e>", true), added_token(301, "<e>+")}));
  const Ids text{'<', 'e', '>'};
  EXPECT_EQ(encoded(tokenizer, "<e><e><e>", {{3, 6}}), (Ids{300, '<', 'e', '>', 300}));
  for (const TextRange inside : {TextRange{0, 3}, TextRange{0, 1}, TextRange{1, 2}, TextRange{2, 3}})
    EXPECT_EQ(encoded(tokenizer, "<e>", {inside}), text);
  // Of two tokens that begin together, the one outside of the data is found.
  EXPECT_EQ(encoded(tokenizer, "<e>+", {{3, 4}}), (Ids{300, '+'}));
  EXPECT_EQ(encoded(tokenizer, "<e>+", {{4, 4}}), (Ids{301}));
  EXPECT_EQ(encoded(tokenizer, "<e>", {{1, 1}}), (Ids{300}));  // an empty range touches nothing
}

TEST(TokenizerData, DoesNotSplitText) {
  const Tokenizer tokenizer = parsed(small_tokenizer_json());
  EXPECT_EQ(encoded(tokenizer, "hell", {{1, 3}}), (Ids{258}));
  TestJson json = small_tokenizer_json();
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(encoded(parsed(json), "e\u0301", {{1, 3}}), (Ids{0xC3, 0xA9}));
}

TEST(TokenizerData, TakesNoWhiteSpaceFromData) {
  TestJson token = added_token(300, "<e>");
  token["lstrip"] = token["rstrip"] = true;
  const Tokenizer tokenizer = parsed(with_added(TestJson::array({token})));
  EXPECT_EQ(encoded(tokenizer, "  <e>  "), (Ids{300}));
  EXPECT_EQ(encoded(tokenizer, "  <e>  ", {{0, 1}, {6, 7}}), (Ids{' ', 300, ' '}));
}

TEST(TokenizerData, AdjustsTheDataToNormalizationAndReplacement) {
  TestJson json = with_added({added_token(300, "<e>", true, true), added_token(301, "[e]", true)});
  json["normalizer"] = {{"type", "NFC"}};
  const Tokenizer tokenizer = parsed(json);
  // "e\u0301" shrinks by one byte before each token.
  EXPECT_EQ(encoded(tokenizer, "e\u0301<e>e\u0301<e>", {{0, 3}}), (Ids{0xC3, 0xA9, 300, 0xC3, 0xA9, 300}));
  EXPECT_EQ(encoded(tokenizer, "e\u0301<e>e\u0301<e>", {{6, 12}}),
            (Ids{0xC3, 0xA9, 300, 0xC3, 0xA9, '<', 'e', '>'}));
  EXPECT_EQ(encoded(tokenizer, "<e>\u212B", {{3, 6}}), (Ids{300, 0xC3, 0x85}));
  // An invalid byte becomes three.
  EXPECT_EQ(encoded(tokenizer, "\xFF[e]\xFF[e]", {{0, 1}}),
            (Ids{0xEF, 0xBF, 0xBD, 301, 0xEF, 0xBF, 0xBD, 301}));
  EXPECT_EQ(encoded(tokenizer, "\xFF[e]\xFF[e]", {{4, 6}}),
            (Ids{0xEF, 0xBF, 0xBD, 301, 0xEF, 0xBF, 0xBD, '[', 'e', ']'}));
}

TEST(TokenizerData, RequiresRangesInOrder) {
  const Tokenizer tokenizer = parsed(small_tokenizer_json());
  EXPECT_CONTRACT(encoded(tokenizer, "abc", {{1, 2}, {0, 1}}), "ranges of data are ascending and disjoint");
  EXPECT_CONTRACT(encoded(tokenizer, "abc", {{1, 4}}), "ranges of data lie in the text");
}

// Text of pieces that affect tokens, normalization and patterns.
rc::Gen<std::string> texts() {
  return rc::gen::map(
      rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(std::vector<std::string>{
          "a",          "the ",     " ",     "  ",         "\n",      "e", "\u0301", "\u00e9", "\u65e5\u672c",
          "\U0001F44D", "1",        "'s",    "<|im_end|>", "<think>", "<", "|>",     "\u0323", "\u1100\u1161",
          "\xFF",       "\xE2\x82", "\u212B"})),
      [](const std::vector<std::string>& parts) { return fmt::format("{}", fmt::join(parts, "")); });
}

RC_GTEST_PROP(TokenizerData, MatchesAllIfNoAddedTokenTouchesData, ()) {
  static const Tokenizer tokenizer = tern();
  const std::string before = *texts(), after = *texts();
  std::string data = *texts();
  std::erase_if(data, [](char c) { return c == '<' || c == '>' || c == '|'; });
  const std::string text = before + data + after;
  RC_ASSERT(encoded(tokenizer, text, {{before.size(), before.size() + data.size()}}) ==
            encoded(tokenizer, text));
}

RC_GTEST_PROP(TokenizerData, MatchesNoneIfEverythingIsData, ()) {
  static const Tokenizer tokenizer = tern();
  const std::string text = *texts();
  RC_ASSERT(encoded(tokenizer, text, {{0, text.size()}}) == encoded(tokenizer, text, AddedTokens::none));
}

// Any Unicode text round-trips. Tern normalizes, so the result is the normalized text.
RC_GTEST_PROP(Tokenizer, DecodesTheTextThatItEncoded, ()) {
  static const Tokenizer plain = parsed(small_tokenizer_json()), normalizing = tern();
  std::string text;
  for (const auto code : *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::oneOf(
           rc::gen::inRange<std::uint32_t>(0, 0x250), rc::gen::inRange<std::uint32_t>(0, 0xD800),
           rc::gen::inRange<std::uint32_t>(0xE000, 0x110000))))
    append_utf8(text, code);
  const auto round_trip = [](const Tokenizer& tokenizer, const std::string& of) {
    std::vector<TokenId> tokens;
    RC_ASSERT(tokenizer.encode(of, AddedTokens::all, tokens).has_value());
    return tokenizer.decode(tokens, false);
  };
  RC_ASSERT(round_trip(plain, text) == text);
  const std::string once = round_trip(normalizing, text);
  RC_ASSERT(round_trip(normalizing, once) == once);
}

TEST(Tokenizer, EncodesLongRuns) {
  const Tokenizer tokenizer = tern();
  for (const std::string_view unit :
       {"a", " ", "\n", "\u0301", "\u65e5", "1", "=", "\U0001F44D", " \n", "a\u0301", "\xFF", "<|im_end|>"}) {
    std::string text;
    while (text.size() < 100'000) text += unit;
    std::vector<TokenId> tokens;
    ASSERT_TRUE(tokenizer.encode(text, AddedTokens::all, tokens).has_value());
    EXPECT_GT(tokens.size(), 100u);
  }
}

TEST(Tokenizer, IsThreadSafe) {
  const Tokenizer tokenizer = tern();
  std::vector<std::string> inputs;
  for (int i = 0; i < 40; ++i)
    inputs.push_back(fmt::format("Thread {} said: caf\u00e9 <|im_end|> e\u0301 {}", i, i * i));
  std::vector<Ids> expected;
  for (const std::string& text : inputs) expected.push_back(encoded(tokenizer, text));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round)
        for (std::size_t i = 0; i < inputs.size(); ++i)
          wrong[t] += encoded(tokenizer, inputs[i]) != expected[i];
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace moeflux
