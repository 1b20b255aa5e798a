#include "sampling/json_object.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/testing/allocation_counter.h"
#include "base/testing/expect_contract.h"
#include "sampling/sampler.h"
#include "text/json/testing/json_oracle.h"

namespace moeflux {
namespace {

// Every byte, pieces of JSON as in real vocabularies, halves of characters, empty tokens and special tokens.
struct Vocabulary {
  Vocabulary() : Vocabulary(std::vector<std::string>{}) {}
  explicit Vocabulary(const std::vector<std::string>& more)
      : strings(all(more)),
        bytes(strings),
        json(bytes, std::vector<TokenId>{end, other_end, TokenId{1u << 20}},
             [](TokenId token) { return token == special; }) {}

  static std::vector<std::string> all(const std::vector<std::string>& more) {
    std::vector<std::string> tokens{"<|im_end|>", "}", "{\"", ""};
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* piece :
         {"\"},", "\"}",      "\"}}",    "{\"",   "\":",      "\": \"",   "\":{\"",   "\",\"",  "\"]",
          "}]",   "]}",       "}}",      "},",    "},{",      "[[",       "[]",       "{}",     " the",
          "name", "  ",       "\n    ",  "\n}",   "tru",      "true",     "e,",       "null",   "fal",
          "se",   "123",      ".5",      "e+",    "-1",       "00",       "\\u",      "\\n",    "\\\"",
          "ud8",  "d83d",     "\\ud83d", "\\ude", "\xF0\x9F", "\x98\x80", "\xE2\x82", "\xAC\"", "\"\xF0",
          "\xED", "\xA0\x80", "",        "",      "}\n",      "} ",       "```",      "\"\"",   "\": ["})
      tokens.emplace_back(piece);
    tokens.emplace_back(300, ' ');
    tokens.emplace_back(257, 'a');
    tokens.emplace_back(256, 'a');
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }

  static constexpr TokenId end{0}, other_end{3}, special{2};  // `special` would fit as text
  std::vector<std::string> strings;
  TokenBytes bytes;
  JsonVocabulary json;
};

bool bit(const std::vector<std::uint64_t>& mask, std::size_t i) {
  return (mask[i / 64] >> (i % 64) & 1) != 0;
}

TEST(JsonObjectConstraint, BeginsWithABraceAndEndsAfterTheLastOne) {
  const Vocabulary vocabulary;
  JsonObjectConstraint constraint(vocabulary.json);
  const auto token = [&](std::string_view text) {
    for (std::uint32_t i = 4; i < vocabulary.strings.size(); ++i)
      if (vocabulary.strings[i] == text) return TokenId{i};
    ADD_FAILURE() << text;
    return TokenId{0};
  };
  EXPECT_TRUE(constraint.allows(token("{")));
  EXPECT_TRUE(constraint.allows(token("{\"")));
  EXPECT_TRUE(constraint.allows(token("{}")));
  EXPECT_FALSE(constraint.allows(token("[")));
  EXPECT_FALSE(constraint.allows(Vocabulary::end));
  EXPECT_FALSE(constraint.can_end());
  for (const char* text : {"{\"", "name", "\": [", "123", "]}"}) {
    ASSERT_TRUE(constraint.allows(token(text))) << text;
    constraint.accept(token(text));
  }
  EXPECT_TRUE(constraint.can_end());
  std::vector<std::uint64_t> mask(20);
  constraint.write_mask(mask);
  for (std::uint32_t i = 0; i < mask.size() * 64; ++i)
    EXPECT_EQ(bit(mask, i), TokenId{i} == Vocabulary::end || TokenId{i} == Vocabulary::other_end) << i;
  constraint.accept(Vocabulary::end);
  EXPECT_FALSE(constraint.can_end());
  constraint.write_mask(mask);
  EXPECT_EQ(mask, std::vector<std::uint64_t>(20)) << "nothing is allowed after the end";
  EXPECT_FALSE(constraint.allows(Vocabulary::end));
}

TEST(JsonObjectConstraint, NeverAllowsSpecialEmptyOverlongOrUnknownTokens) {
  const Vocabulary vocabulary;
  JsonObjectConstraint constraint(vocabulary.json);
  EXPECT_EQ(vocabulary.strings[Vocabulary::special.index()], "{\"");
  EXPECT_FALSE(constraint.allows(Vocabulary::special));
  EXPECT_FALSE(constraint.allows(TokenId{1u << 20}));
  for (const char* begin : {"", "{", "{\"", "{\"a\":"}) {
    JsonObjectConstraint at(vocabulary.json);
    for (const char* byte = begin; *byte != 0; ++byte)
      at.accept(TokenId{4u + static_cast<unsigned char>(*byte)});
    for (std::uint32_t i = 0; i < vocabulary.strings.size(); ++i) {
      const std::size_t size = vocabulary.strings[i].size();
      if (size == 0 || size > TokenTrie::kLongestToken) {
        EXPECT_FALSE(at.allows(TokenId{i}));
      }
    }
  }
  EXPECT_CONTRACT(constraint.accept(Vocabulary::special), "the token is one that the constraint allows");
  std::vector<std::uint64_t> small(1);
  EXPECT_CONTRACT(constraint.write_mask(small), "the mask has a bit for each token");
}

// Any walk over allowed tokens is a prefix of an object, and the mask agrees with allows() for each token.
TEST(JsonObjectConstraint, KeepsRandomWalksWithinJson) {
  const Vocabulary vocabulary;
  std::mt19937 random(17);
  std::vector<std::uint64_t> mask((vocabulary.strings.size() + 63) / 64 + 1);
  int closed = 0, text_bytes = 0;
  for (int round = 0; round < 600; ++round) {
    JsonObjectConstraint constraint(vocabulary.json);
    JsonAutomaton automaton(JsonObjectLimits{});
    std::string text;
    for (int step = 0; step < 60; ++step) {
      constraint.write_mask(mask);
      std::vector<std::uint32_t> allowed;
      for (std::uint32_t i = 0; i < mask.size() * 64; ++i) {
        ASSERT_EQ(bit(mask, i), constraint.allows(TokenId{i})) << text << " + " << i;
        if (bit(mask, i)) allowed.push_back(i);
      }
      ASSERT_FALSE(allowed.empty()) << text;
      // Prefers long pieces to single bytes, so that structure grows.
      std::uint32_t token = allowed[random() % allowed.size()];
      if (vocabulary.strings[token].size() == 1) token = allowed[random() % allowed.size()];
      const bool could_end = constraint.can_end();
      constraint.accept(TokenId{token});
      if (could_end) {
        EXPECT_TRUE(token == Vocabulary::end.index() || token == Vocabulary::other_end.index());
        break;
      }
      text += vocabulary.strings[token];
      ASSERT_TRUE(automaton.accept(vocabulary.strings[token]));
    }
    closed += automaton.complete();
    text_bytes += static_cast<int>(text.size());
    const std::string whole = text + closing(automaton);
    const auto json = nlohmann::json::parse(whole, nullptr, false);
    ASSERT_TRUE(json.is_object()) << whole;
  }
  EXPECT_GT(closed, 50);
  EXPECT_GT(text_bytes, 20000);
}

TEST(JsonObjectConstraint, HoldsForEveryDrawOfTheSampler) {
  const Vocabulary vocabulary;
  const std::size_t size = vocabulary.strings.size() + 7;  // the model's head is padded
  SamplingWorkspace workspace(size);
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 3);
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SamplingOptions options;
    options.temperature = seed % 3 == 0 ? 0.0 : 1.5;
    options.top_p = 0.9;
    options.seed = seed;
    Sampler sampler = *Sampler::create(options, workspace);
    JsonObjectConstraint constraint(vocabulary.json, {.depth = 5, .whitespace = 2});
    std::string text;
    JsonAutomaton automaton({.depth = 5, .whitespace = 2});
    for (int step = 0; step < 100; ++step) {
      std::vector<float> logits(size);
      for (float& logit : logits) logit = normal(random);
      const auto choice = sampler.sample(logits, &constraint);
      ASSERT_TRUE(choice) << choice.error().message();
      ASSERT_TRUE(constraint.allows(choice->token));
      sampler.accept(choice->token);
      constraint.accept(choice->token);
      if (automaton.complete()) break;
      text += vocabulary.strings[choice->token.index()];
      ASSERT_TRUE(automaton.accept(vocabulary.strings[choice->token.index()]));
    }
    EXPECT_TRUE(should_accept(text + closing(automaton), {.depth = 5, .whitespace = 2})) << text;
  }
}

TEST(JsonObjectConstraint, VisitsFewNodesForAMask) {
  std::mt19937 random(6);
  std::vector<std::string> words;
  std::size_t bytes = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string word(random() % 2, ' ');
    for (std::size_t size = 2 + random() % 8; word.size() < size;)
      word += static_cast<char>('a' + random() % 26);
    if (i % 50 == 0) word += "\",";
    bytes += word.size();
    words.push_back(word);
  }
  const Vocabulary vocabulary(words);
  std::vector<std::uint64_t> mask((vocabulary.strings.size() + 63) / 64);
  JsonObjectConstraint constraint(vocabulary.json);
  for (const char byte : std::string("{\"a\\n\": [1, -2.5, true, \"b\", {}]}")) {
    const AllocationCounter counter;
    constraint.write_mask(mask);
    constraint.accept(TokenId{4u + static_cast<unsigned char>(byte)});
    EXPECT_EQ(counter.allocations(), 0);
    // Worst after a backslash: every token that begins with one of bfnrt continues the string.
    EXPECT_LT(constraint.nodes_visited(), bytes / 10) << byte;
  }
}

}  // namespace
}  // namespace moeflux
