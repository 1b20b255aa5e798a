#include "text/tokenizer/token_bytes.h"

#include <gtest/gtest.h>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

TEST(TokenBytes, HoldsTheBytesOfEachToken) {
  const std::vector<std::string> tokens{"a", "", std::string("\0\xff", 2), " the"};
  const TokenBytes bytes(tokens);
  ASSERT_EQ(bytes.size(), 4u);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(bytes[TokenId{i}], tokens[i]);
}

TEST(TokenBytes, RequiresAnIdOfTheVocabulary) {
  const TokenBytes bytes(std::vector<std::string>{"a"});
  EXPECT_CONTRACT(bytes[TokenId{1}], "the token is one of the vocabulary");
}

}  // namespace
}  // namespace moeflux
