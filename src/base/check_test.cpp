#include "base/check.h"

#include <gtest/gtest.h>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

TEST(Require, EvaluatesItsConditionOnce) {
  int evaluated = 0;
  MF_REQUIRE(++evaluated == 1, "evaluated once");
  EXPECT_EQ(evaluated, 1);
}

TEST(Require, AbortsWithTheTextOfABrokenPromise) {
  EXPECT_CONTRACT(MF_REQUIRE(1 + 1 == 3, "x has one element per column"), "x has one element per column");
}

}  // namespace
}  // namespace moeflux
