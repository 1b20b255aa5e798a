#include "base/overloaded.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>

namespace moeflux {
namespace {

TEST(Overloaded, CallsTheLambdaOfTheHeldAlternative) {
  const auto describe = [](const std::variant<int, std::string>& value) {
    return std::visit(overloaded{[](int) { return "a number"; }, [](const std::string&) { return "a text"; }},
                      value);
  };
  EXPECT_STREQ(describe(1), "a number");
  EXPECT_STREQ(describe("one"), "a text");
}

}  // namespace
}  // namespace moeflux
