#include "base/testing/states.h"

#include <gtest/gtest.h>

#include "base/result.h"

namespace moeflux {
namespace {

using test::States;
using testing::Not;

constexpr std::string_view kMessage = "model.bin: tensor 'x': expected 4 rows, found 13";

TEST(States, FindsFactsInAnyOrder) {
  EXPECT_THAT(kMessage, States("found 13", "tensor 'x'", "model.bin", 4));
  EXPECT_THAT(kMessage, Not(States("model.bin", "tensor 'y'")));
}

TEST(States, TakesAFactAsAWholeWord) {
  EXPECT_THAT(kMessage, Not(States(3)));
  EXPECT_THAT(kMessage, Not(States(1)));
  EXPECT_THAT(kMessage, Not(States("row")));
  EXPECT_THAT("13 of 3", States(3));
  EXPECT_THAT("'x'y", States("'x'"));
}

TEST(States, LooksIntoErrors) {
  const Error error(ErrorCode::corrupt_data, std::string(kMessage));
  EXPECT_THAT(error, States(4, 13));
  EXPECT_THAT(Status(error), States(4, 13));
  EXPECT_THAT(Result<int>(error), States(4, 13));
}

TEST(States, RejectsAResultWithoutAnError) {
  EXPECT_THAT(Result<int>(13), Not(States(13)));
  EXPECT_THAT(Status(), Not(States("found")));
}

TEST(States, NamesWhatIsMissing) {
  testing::StringMatchResultListener why;
  EXPECT_FALSE(testing::ExplainMatchResult(States("4 rows", 5, "'y'"), kMessage, &why));
  EXPECT_EQ(why.str(), "whose message \"" + std::string(kMessage) + "\" lacks \"5\", \"'y'\"");
}

}  // namespace
}  // namespace moeflux
