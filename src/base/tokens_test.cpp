#include "base/tokens.h"

#include <gtest/gtest.h>

#include <vector>

namespace moeflux {
namespace {

TEST(Tokens, AreOfTheVocabularyOrNamed) {
  const std::vector<TokenId> tokens{TokenId(0), TokenId(9), TokenId(3)};
  EXPECT_TRUE(check_vocabulary(tokens, 10));
  EXPECT_TRUE(check_vocabulary({}, 0));
  const Status refused = check_vocabulary(tokens, 9);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::token_out_of_range);
  EXPECT_EQ(refused.error().message(), "token 9 is not one of the vocabulary's 9");
}

}  // namespace
}  // namespace moeflux
