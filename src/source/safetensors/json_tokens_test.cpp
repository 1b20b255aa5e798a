#include "source/safetensors/json_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;

std::string problem(const std::string& json) {
  const Status status = check_json_tokens(json, "a.json");
  return status ? "none" : status.error().message();
}

TEST(JsonTokens, AcceptAnyNumberOfShortTokens) {
  std::string json = "[";
  for (int i = 0; i < 300'000; ++i) json += "\"x\",";
  EXPECT_GT(json.size(), kMaxJsonTokenBytes);
  EXPECT_EQ(problem(json + "1]"), "none");
  EXPECT_EQ(problem("{}" + std::string(kMaxJsonTokenBytes / 2, ' ')), "none");
}

TEST(JsonTokens, RejectALongTokenAtItsFirstByte) {
  const std::string longest(kMaxJsonTokenBytes - 2, 'x');
  EXPECT_EQ(problem("[\"" + longest + "\"]"), "none");
  EXPECT_THAT(problem("[\"" + longest + "xxx\"]"), States(1048576, "byte 1"));
  EXPECT_THAT(problem("[" + std::string(kMaxJsonTokenBytes + 2, '9') + "]"), States("byte 1"));
}

TEST(JsonTokens, RejectLongWhitespace) {
  EXPECT_THAT(problem("{}" + std::string(2 * kMaxJsonTokenBytes, '\n')), States("byte 2"));
}

TEST(JsonTokens, DoNotEndAtAnEscapedQuote) {
  std::string escaped = "\"";
  while (escaped.size() <= kMaxJsonTokenBytes + 4) escaped += "\\\", [";
  EXPECT_THAT(problem(escaped), States("a.json", 1048576, "byte 0"));
}

TEST(JsonTokens, DoNotContainANul) {
  EXPECT_THAT(problem(std::string("{}\0", 3)), States("a.json", "JSON", "NUL", "byte 2"));
}

}  // namespace
}  // namespace moeflux
