#include "source/json_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace moeflux {
namespace {

using testing::HasSubstr;

std::string problem(const std::string& json) {
  const Status status = check_json_tokens(json, "a.json");
  return status ? "none" : status.error().message();
}

TEST(JsonTokens, OfAnyNumberAreFineWhileEachIsShort) {
  std::string json = "[";
  for (int i = 0; i < 300'000; ++i) json += "\"x\",";
  EXPECT_GT(json.size(), kMaxJsonTokenBytes);
  EXPECT_EQ(problem(json + "1]"), "none");
  EXPECT_EQ(problem("{}" + std::string(kMaxJsonTokenBytes / 2, ' ')), "none");
}

TEST(JsonTokens, LongerThanTheLimitAreRefusedWhereTheyBegin) {
  const std::string longest(kMaxJsonTokenBytes - 2, 'x');
  EXPECT_EQ(problem("[\"" + longest + "\"]"), "none");
  EXPECT_THAT(problem("[\"" + longest + "xxx\"]"), HasSubstr("longer than 1048576 bytes begins at byte 1"));
  EXPECT_THAT(problem("[" + std::string(kMaxJsonTokenBytes + 2, '9') + "]"), HasSubstr("begins at byte 1"));
}

TEST(JsonTokens, MayNotHaveEndlessSpaceBeforeThem) {
  EXPECT_THAT(problem("{}" + std::string(2 * kMaxJsonTokenBytes, '\n')), HasSubstr("begins at byte 2"));
}

TEST(JsonTokens, DoNotEndAtAnEscapedQuote) {
  std::string escaped = "\"";
  while (escaped.size() <= kMaxJsonTokenBytes + 4) escaped += "\\\", [";
  EXPECT_THAT(problem(escaped), HasSubstr("longer than"));
}

TEST(JsonTokens, DoNotContainANul) {
  EXPECT_THAT(problem(std::string("{}\0", 3)), HasSubstr("a.json: not valid JSON: a NUL at byte 2"));
}

}  // namespace
}  // namespace moeflux
