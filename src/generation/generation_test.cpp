#include "generation/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "generation/testing/test_text.h"

namespace moeflux {
namespace {

using testing::ElementsAre;

constexpr std::size_t kVocabulary = 4096;  // Tern's head; its tokenizer has 4041

// Drives a generation with logits that a test chooses.
struct AGeneration : testing::Test {
  SamplingWorkspace workspace{kVocabulary};
  GenerationOptions options;
  Prompt prompt;
  ToolSchemas tools;
  Listener listener;
  std::vector<TokenId> end_tokens{TokenId(4032), TokenId(4034)};  // ascending

  AGeneration() { options.sampling.temperature = 0; }

  Generation begun() {
    Result<Generation> generation =
        Generation::begin({tern_text(), end_tokens, tools}, options, prompt, workspace);
    EXPECT_TRUE(generation) << generation.error().message();
    return *std::move(generation);
  }
  static std::vector<float> logits_for(TokenId token) {
    std::vector<float> logits(kVocabulary);
    logits[token.index()] = 10;
    return logits;
  }
  // Feeds the tokens of `words` and then an end token; returns the finish reason.
  FinishReason saying(std::string_view words) {
    Generation generation = begun();
    for (const TokenId token : tokens_of(words)) {
      const Result<std::optional<TokenId>> next = generation.next(logits_for(token), listener);
      EXPECT_TRUE(next) << next.error().message();
      if (!*next) break;
      EXPECT_EQ(**next, token);
    }
    if (!generation.is_finished()) {
      EXPECT_TRUE(generation.next(logits_for(TokenId(4034)), listener));
    }
    EXPECT_TRUE(generation.is_finished());
    stop_string = generation.stop_string();
    reply_end = generation.reply_end();
    reply_tokens = generation.tokens().size();
    return generation.reason();
  }
  std::optional<std::size_t> stop_string;
  ReplyEnd reply_end;
  std::size_t reply_tokens = 0;
};

TEST_F(AGeneration, PassesOnTextAndEndsAtAnEndToken) {
  EXPECT_EQ(saying("Hello, naïve 日本語 🦊!"), FinishReason::end_of_text);
  EXPECT_EQ(listener.text, "Hello, naïve 日本語 🦊!");
  EXPECT_EQ(listener.bytes, listener.text);
  EXPECT_EQ(reply_tokens, listener.tokens.size());
}

TEST_F(AGeneration, EndsAtAStopStringThatSpansTokens) {
  options.stop = {"never", "and st"};
  EXPECT_EQ(saying("up and stop there"), FinishReason::stop_string);
  EXPECT_EQ(listener.text, "up ");
  EXPECT_EQ(stop_string, 1u);
}

TEST_F(AGeneration, HoldsBackOnlyWhatMayBeAStopString) {
  options.stop = {"xyz"};
  EXPECT_EQ(saying("ends with xy"), FinishReason::end_of_text);
  EXPECT_EQ(listener.text, "ends with xy");
}

TEST_F(AGeneration, EndsAfterMaxTokens) {
  options.max_tokens = 3;
  EXPECT_EQ(saying("one two three four five"), FinishReason::length);
  EXPECT_EQ(listener.tokens.size(), 3u);
  options.max_tokens = 0;
  listener = {};
  EXPECT_EQ(saying("one"), FinishReason::length);
  EXPECT_EQ(listener.tokens.size(), 0u);
}

TEST_F(AGeneration, CanIgnoreEndTokens) {
  options.ignores_end = true;
  options.max_tokens = 2;
  Generation generation = begun();
  ASSERT_TRUE(*generation.next(logits_for(TokenId(4034)), listener));
  EXPECT_FALSE(generation.is_finished());
  EXPECT_FALSE(*generation.next(logits_for(TokenId(4034)), listener));
  EXPECT_EQ(generation.reason(), FinishReason::length);
  EXPECT_EQ(listener.text, "");  // special tokens are not text
}

TEST_F(AGeneration, SeparatesReasoningTextAndToolCalls) {
  prompt.reply = {ToolFormat::qwen_xml, true, true};
  const Json schema = Json::parse(
      R"([{"type":"function","function":{"name":"f","parameters":{"properties":{"n":{"type":"integer"}}}}}])");
  tools = *ToolSchemas::read(schema);
  EXPECT_EQ(
      saying("hm\n</think>\n\nOK\n<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n</function>\n"
             "</tool_call>"),
      FinishReason::tool_calls);
  EXPECT_EQ(listener.reasoning, "hm");
  EXPECT_EQ(listener.text, "OK");
  EXPECT_THAT(listener.calls, ElementsAre(R"(f{"n": 5})"));
  EXPECT_EQ(reply_end.finished_calls, 1u);
}

TEST_F(AGeneration, WithoutAFormatPassesEverythingOn) {
  const std::string raw = "<think>\nx\n</think>\n<tool_call>\n{}\n</tool_call>";
  EXPECT_EQ(saying(raw), FinishReason::end_of_text);
  EXPECT_EQ(listener.text, raw);
}

TEST_F(AGeneration, EndsAJsonObjectAtItsLastBrace) {
  options.json_object = true;
  Generation generation = begun();
  // The model prefers to chat; the constraint lets only an object pass.
  bool is_first = true;
  for (const TokenId token : tokens_of(R"({"a": 1})")) {
    std::vector<float> logits = logits_for(token);
    if (std::exchange(is_first, false)) logits[tokens_of("Hello")[0].index()] = 20;
    ASSERT_FALSE(generation.is_finished());
    ASSERT_TRUE(generation.next(logits, listener));
  }
  EXPECT_TRUE(generation.is_finished());
  EXPECT_EQ(generation.reason(), FinishReason::end_of_text);
  EXPECT_EQ(listener.text, R"({"a": 1})");
}

TEST_F(AGeneration, PassesAJsonObjectOnAsTextEvenIfThePromptOpensReasoning) {
  options.json_object = true;
  prompt.reply = {ToolFormat::none, true, true};
  EXPECT_EQ(saying("{}"), FinishReason::end_of_text);
  EXPECT_EQ(listener.text, "{}");
}

TEST_F(AGeneration, RefusesAJsonObjectIfTheTokenizerIsLargerThanTheModel) {
  options.json_object = true;
  SamplingWorkspace small(100);
  const Result<Generation> refused =
      Generation::begin({tern_text(), end_tokens, tools}, options, prompt, small);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
}

TEST_F(AGeneration, FlushesHeldBackTextWhenStoppedFromOutside) {
  options.stop = {"abc"};
  Generation generation = begun();
  for (const TokenId token : tokens_of("xab")) ASSERT_TRUE(generation.next(logits_for(token), listener));
  generation.stop(FinishReason::cancelled, listener);
  EXPECT_EQ(listener.text, "xab");
  EXPECT_EQ(generation.reason(), FinishReason::cancelled);
  generation.stop(FinishReason::length, listener);
  EXPECT_EQ(generation.reason(), FinishReason::cancelled);
}

TEST_F(AGeneration, ReportsAlternatives) {
  options.sampling.top_logprobs = 3;
  saying("Hi");
  for (const std::size_t size : listener.top_sizes) EXPECT_EQ(size, 3u);
}

TEST_F(AGeneration, PassesOnATokenThatTheTokenizerLacks) {
  Generation generation = begun();
  const Result<std::optional<TokenId>> next = generation.next(logits_for(TokenId(4090)), listener);
  ASSERT_TRUE(next);
  EXPECT_EQ(**next, TokenId(4090));
  EXPECT_EQ(listener.text, "");
}

TEST_F(AGeneration, RefusesInvalidOptions) {
  options.sampling.top_p = 2;
  Result<Generation> refused =
      Generation::begin({tern_text(), end_tokens, tools}, options, prompt, workspace);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused, test::States("top_p"));
  options.sampling.top_p = 1;
  options.stop = {""};
  EXPECT_FALSE(Generation::begin({tern_text(), end_tokens, tools}, options, prompt, workspace));
}

TEST_F(AGeneration, FailsOnLogitsThatAreNotNumbers) {
  Generation generation = begun();
  std::vector<float> logits(kVocabulary, std::numeric_limits<float>::quiet_NaN());
  const Result<std::optional<TokenId>> next = generation.next(logits, listener);
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code(), ErrorCode::corrupt_data);
}

TEST_F(AGeneration, RequiresThatItIsNotFinished) {
  Generation generation = begun();
  ASSERT_TRUE(generation.next(logits_for(TokenId(4034)), listener));
  EXPECT_CONTRACT((void)generation.next(logits_for(TokenId(1)), listener),
                  "a finished generation does not go on");
}

TEST(FinishReasons, HaveNames) {
  EXPECT_EQ(name_of(FinishReason::end_of_text), "end_of_text");
  EXPECT_EQ(name_of(FinishReason::tool_calls), "tool_calls");
  EXPECT_EQ(name_of(FinishReason::stop_string), "stop_string");
  EXPECT_EQ(name_of(FinishReason::length), "length");
  EXPECT_EQ(name_of(FinishReason::context_full), "context_full");
  EXPECT_EQ(name_of(FinishReason::cancelled), "cancelled");
}

}  // namespace
}  // namespace moeflux
