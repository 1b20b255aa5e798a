#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace moeflux {
namespace {

Result<int> half_of(int value) {
  if (value % 2 != 0) return Error(ErrorCode::invalid_argument, "expected an even number");
  return value / 2;
}

Result<int> quarter_of(int value, int& reached) {
  MF_TRY(const int half, half_of(value));
  ++reached;
  MF_TRY(const int quarter, half_of(half));
  ++reached;
  return quarter;
}

Status both_even(int a, int b, int& reached) {
  const auto check = [](int value) -> Status {
    if (value % 2 != 0) return Error(ErrorCode::corrupt_data, std::to_string(value) + " is odd");
    return {};
  };
  MF_TRY_STATUS(check(a));
  ++reached;
  MF_TRY_STATUS(check(b));
  ++reached;
  return {};
}

TEST(Result, HasAValueOrAnError) {
  const Result<int> good = half_of(4);
  ASSERT_TRUE(good.has_value());
  EXPECT_EQ(*good, 2);
  const Result<int> bad = half_of(3);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(bad.error().message(), "expected an even number");
}

TEST(Result, IsReturnedByTryIfItIsAnError) {
  int reached = 0;
  EXPECT_EQ(*quarter_of(8, reached), 2);
  EXPECT_EQ(reached, 2);
  reached = 0;
  EXPECT_FALSE(quarter_of(6, reached));
  EXPECT_EQ(reached, 1);
  reached = 0;
  EXPECT_FALSE(quarter_of(5, reached));
  EXPECT_EQ(reached, 0);
}

TEST(Status, IsReturnedByTryIfItIsAnError) {
  int reached = 0;
  EXPECT_TRUE(both_even(2, 4, reached));
  EXPECT_EQ(reached, 2);
  reached = 0;
  const Status status = both_even(2, 3, reached);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(), "3 is odd");
  EXPECT_EQ(reached, 1);
}

TEST(Result, CarriesMoveOnlyValues) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(7); };
  const auto pass_on = [&]() -> Result<std::unique_ptr<int>> {
    MF_TRY(std::unique_ptr<int> value, make());
    return value;
  };
  auto result = pass_on();
  ASSERT_TRUE(result);
  const std::unique_ptr<int> value = *std::move(result);
  EXPECT_EQ(*value, 7);
}

TEST(Error, IsPrefixedWithActivities) {
  const Error error =
      Error(ErrorCode::io_failed, "short read").during("reading the header").during("opening 'a'");
  EXPECT_EQ(error.message(), "opening 'a': reading the header: short read");
  EXPECT_EQ(error.code(), ErrorCode::io_failed);
}

TEST(ErrorCode, HasADistinctName) {
  constexpr int kLast = static_cast<int>(ErrorCode::bad_checksum);
  std::set<std::string_view> names;
  for (int code = 0; code <= kLast; ++code) names.insert(name_of(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), kLast + 1u);
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_EQ(name_of(static_cast<ErrorCode>(kLast + 1)), "unknown") << "bad_checksum is the last code";
}

}  // namespace
}  // namespace moeflux
