#include "measure/quantiles.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/testing/expect_contract.h"

namespace moeflux {
namespace {

TEST(Quantiles, OfOneSampleAreThatSample) {
  const Quartiles found = quartiles_of(std::vector{7.5});
  EXPECT_EQ(found.least, 7.5);
  EXPECT_EQ(found.lower, 7.5);
  EXPECT_EQ(found.median, 7.5);
  EXPECT_EQ(found.upper, 7.5);
  EXPECT_EQ(found.largest, 7.5);
  EXPECT_EQ(found.spread(), 0);
  EXPECT_EQ(found.relative_spread(), 0);
}

TEST(Quantiles, MedianIsTheMiddleOrBetweenTheTwoInTheMiddle) {
  EXPECT_EQ(median(std::vector{3.0, 1.0, 2.0}), 2);
  EXPECT_EQ(median(std::vector{4.0, 1.0, 3.0, 2.0}), 2.5);
  EXPECT_EQ(median(std::vector{1.0, 1.0}), 1);
}

TEST(Quantiles, AreThoseOfNumpy) {
  // numpy.quantile([15, 20, 35, 40, 50, 81], [0, .25, .5, .75, 1, .4]) = [15, 23.75, 37.5, 47.5, 81, 35]
  const std::vector samples{40.0, 15.0, 81.0, 20.0, 50.0, 35.0};
  const Quartiles found = quartiles_of(samples);
  EXPECT_EQ(found.least, 15);
  EXPECT_EQ(found.lower, 23.75);
  EXPECT_EQ(found.median, 37.5);
  EXPECT_EQ(found.upper, 47.5);
  EXPECT_EQ(found.largest, 81);
  EXPECT_EQ(quantile(samples, 0.4), 35);
  EXPECT_EQ(found.spread(), 23.75);
  EXPECT_DOUBLE_EQ(found.relative_spread(), 23.75 / 37.5);
}

TEST(Quantiles, DoNotMoveWithTheWorstSample) {
  const Quartiles calm = quartiles_of(std::vector{10.0, 11.0, 12.0, 13.0, 14.0});
  const Quartiles wild = quartiles_of(std::vector{10.0, 11.0, 12.0, 13.0, 1e9});
  EXPECT_EQ(calm.median, wild.median);
  EXPECT_EQ(calm.spread(), wild.spread());
}

TEST(Quantiles, HaveNoRelativeSpreadAroundZero) {
  EXPECT_EQ(quartiles_of(std::vector{-1.0, 0.0, 1.0}).relative_spread(), 0);
  EXPECT_EQ(quartiles_of(std::vector{-3.0, -2.0, -1.0}).relative_spread(), 0.5);
}

RC_GTEST_PROP(Quantiles, AreInOrderAndNotOutsideTheSamples, (const std::vector<int>& numbers)) {
  RC_PRE(!numbers.empty());
  std::vector<double> samples(numbers.begin(), numbers.end());
  const Quartiles found = quartiles_of(samples);
  RC_ASSERT(found.least == *std::ranges::min_element(samples));
  RC_ASSERT(found.largest == *std::ranges::max_element(samples));
  RC_ASSERT(found.least <= found.lower && found.lower <= found.median);
  RC_ASSERT(found.median <= found.upper && found.upper <= found.largest);
  std::ranges::reverse(samples);
  RC_ASSERT(median(samples) == found.median);
  const auto below = std::ranges::count_if(samples, [&](double sample) { return sample < found.median; });
  const auto above = std::ranges::count_if(samples, [&](double sample) { return sample > found.median; });
  RC_ASSERT(2 * std::max(below, above) <= static_cast<std::ptrdiff_t>(samples.size()));
}

TEST(Quantiles, ArePromisedNumbersToWorkWith) {
  EXPECT_CONTRACT((void)median({}), "there is at least one sample");
  const std::vector samples{1.0, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_CONTRACT((void)quartiles_of(samples), "every sample is finite");
  EXPECT_CONTRACT((void)quantile(std::vector{1.0}, 1.5), "a fraction is from 0 to 1");
}

}  // namespace
}  // namespace moeflux
