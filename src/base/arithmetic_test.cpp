#include "base/arithmetic.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <limits>

namespace moeflux {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

TEST(CheckedMultiply, RejectsProductsThatWouldWrapAround) {
  EXPECT_EQ(checked_multiply(0, kMax), 0u);
  EXPECT_EQ(checked_multiply(kMax, 1), kMax);
  EXPECT_EQ(checked_multiply(std::uint64_t{1} << 32, (std::uint64_t{1} << 32) - 1), kMax - 0xFFFFFFFF);
  EXPECT_EQ(checked_multiply(std::uint64_t{1} << 32, std::uint64_t{1} << 32), std::nullopt);
  EXPECT_EQ(checked_multiply(kMax, 2), std::nullopt);
}

TEST(CheckedAdd, RejectsSumsThatWouldWrapAround) {
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_add(kMax, 1), std::nullopt);
}

RC_GTEST_PROP(CheckedAdd, AgreesWithTheOperatorIfTheSumFits, (std::uint64_t a, std::uint64_t b)) {
  const auto sum = checked_add(a, b);
  RC_ASSERT(sum.has_value() == (b <= kMax - a));
  if (sum) RC_ASSERT(*sum == a + b);
}

TEST(CheckedProduct, IsOneForAScalarAndRejectsOverflow) {
  EXPECT_EQ(checked_product({}), 1u);
  EXPECT_EQ(checked_product(std::array<std::uint64_t, 3>{512, 2048, 3}), 512u * 2048 * 3);
  EXPECT_EQ(checked_product(std::array<std::uint64_t, 3>{kMax, kMax, 0}), std::nullopt);
  EXPECT_EQ(checked_product(std::array<std::uint64_t, 3>{0, kMax, kMax}), 0u);
}

RC_GTEST_PROP(DivideUp, IsTheSmallestSufficientCount, (std::uint32_t value)) {
  const auto by = *rc::gen::inRange<std::uint32_t>(1, 10'000);
  const std::uint64_t parts = divide_up(value, by);
  RC_ASSERT(parts * by >= value);
  RC_ASSERT(parts == 0 || (parts - 1) * by < value);
}

TEST(DivideUp, DoesNotOverflowForTheLargestValue) {
  EXPECT_EQ(divide_up(kMax, std::uint64_t{1}), kMax);
  EXPECT_EQ(divide_up(kMax, kMax), 1);
  EXPECT_EQ(divide_up(std::uint64_t{0}, kMax), 0);
}

}  // namespace
}  // namespace moeflux
