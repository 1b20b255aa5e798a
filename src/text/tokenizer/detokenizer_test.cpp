#include "text/tokenizer/detokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "text/tokenizer/testing/small_tokenizer.h"

namespace moeflux {
namespace {

Tokenizer with_added() {
  TestJson json = small_tokenizer_json();
  json["added_tokens"] = {added_token(300, "<|end|>", true), added_token(301, "<think>"),
                          added_token(303, "\u65e5")};
  return parsed(json);
}

TEST(Detokenizer, ReturnsWholeCharactersOnly) {
  const Tokenizer tokenizer = with_added();
  Detokenizer text(tokenizer, true);
  EXPECT_EQ(text.push(TokenId{'h'}), "h");
  EXPECT_EQ(text.push(TokenId{0xC3}), "");
  EXPECT_EQ(text.push(TokenId{0xA9}), "\u00e9");
  EXPECT_EQ(text.push(TokenId{300}), "");  // special
  EXPECT_EQ(text.push(TokenId{301}), "<think>");
  EXPECT_EQ(text.push(TokenId{302}), "");     // a hole
  EXPECT_EQ(text.push(TokenId{99'999}), "");  // beyond
  EXPECT_EQ(text.push(TokenId{0xE2}), "");
  EXPECT_EQ(text.push(TokenId{303}), "\uFFFD\u65e5");
  EXPECT_EQ(text.push(TokenId{0xF0}), "");
  EXPECT_EQ(text.finish(), "\uFFFD");
  EXPECT_EQ(text.finish(), "");
}

RC_GTEST_PROP(Detokenizer, ReturnsTheTextOfDecodePieceByPiece, (bool skip_special)) {
  static const Tokenizer tokenizer = with_added();
  const auto ids = *rc::gen::container<std::vector<std::uint32_t>>(
      rc::gen::oneOf(rc::gen::inRange<std::uint32_t>(0, 310), rc::gen::inRange<std::uint32_t>(0x80, 0x100)));
  std::vector<TokenId> tokens;
  for (const std::uint32_t id : ids) tokens.push_back(TokenId{id});
  Detokenizer detokenizer(tokenizer, skip_special);
  std::string text;
  for (const TokenId token : tokens) text += detokenizer.push(token);
  text += detokenizer.finish();
  RC_ASSERT(text == tokenizer.decode(tokens, skip_special));
}

}  // namespace
}  // namespace moeflux
