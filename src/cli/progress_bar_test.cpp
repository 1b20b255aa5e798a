#include "cli/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/testing/states.h"

namespace moeflux::cli {
namespace {

using test::States;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint64_t kGb = 1'000'000'000;

TEST(ProgressLine, StatesProgressRateAndTimeLeft) {
  EXPECT_EQ(progress_line("packing", 90 * kGb, 0, 200 * kGb, 90),
            "packing  45 % [#########...........] 90.0 GB of 200.0 GB, 1.00 GB/s, 1 min 50 s left");
}

TEST(ProgressLine, CountsOnlyThisRunForTheRate) {
  EXPECT_THAT(progress_line("packing", 150 * kGb, 100 * kGb, 200 * kGb, 10), States("5.00 GB/s", ", 10 s"));
}

TEST(ProgressLine, MakesNoEstimateWithoutData) {
  EXPECT_THAT(progress_line("packing", kGb, 0, 2 * kGb, 0.1), EndsWith("1.00 GB of 2.00 GB"));
  EXPECT_THAT(progress_line("packing", kGb, kGb, 2 * kGb, 10), EndsWith("1.00 GB of 2.00 GB"));
  EXPECT_THAT(progress_line("packing", 0, 0, 2 * kGb, 10), EndsWith(" 0 B of 2.00 GB"));
}

TEST(ProgressLine, IsEmptyAtTheStartAndFullAtTheEnd) {
  EXPECT_THAT(progress_line("verifying", 0, 0, kGb, 0),
              StartsWith("verifying   0 % [....................] 0 B"));
  EXPECT_THAT(progress_line("verifying", kGb, 0, kGb, 1),
              StartsWith("verifying 100 % [####################]"));
  EXPECT_THAT(progress_line("verifying", kGb, 0, kGb, 1), States(", 0 s"));
}

TEST(ProgressLine, IsDoneForAnEmptyJob) {
  EXPECT_THAT(progress_line("packing", 0, 0, 0, 1), HasSubstr("100 % [###"));
}

TEST(ProgressLine, PrintsHoursIfAny) {
  EXPECT_THAT(progress_line("packing", kGb, 0, 7200 * kGb, 1), States("1 h 59 min"));
  EXPECT_THAT(progress_line("packing", kGb, 0, 60 * kGb, 1), States(", 59 s"));
  EXPECT_THAT(progress_line("packing", kGb, 0, 61 * kGb, 1), States(", 1 min 0 s"));
}

TEST(ProgressBar, PrintsNothingIfStandardErrorIsNotATerminal) {
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("packing");
    bar.update(1, 0, 2);
    bar.update(2, 0, 2);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace moeflux::cli
