#include "base/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/testing/states.h"

namespace moeflux {
namespace {

TEST(Tokens, AreRejectedOutsideTheVocabulary) {
  const std::vector<TokenId> tokens{TokenId(0), TokenId(9), TokenId(3)};
  EXPECT_TRUE(check_vocabulary(tokens, 10));
  EXPECT_TRUE(check_vocabulary({}, 0));
  const Status refused = check_vocabulary(tokens, 9);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::token_out_of_range);
  EXPECT_THAT(refused, test::States("token 9", "9 tokens"));
}

}  // namespace
}  // namespace moeflux
