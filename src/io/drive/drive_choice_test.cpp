#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>

#include "io/drive.h"

namespace moeflux {
namespace {

using testing::HasSubstr;

TEST(DriveChoices, AreReadByTheirNames) {
  for (const DriveKind kind : {DriveKind::uring, DriveKind::pread, DriveKind::buffered}) {
    const Result<DriveChoice> choice = parse_drive_choice(name_of(kind));
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->kind, kind);
  }
}

TEST(DriveChoices, StateTheSpeedOfASimulatedDrive) {
  const auto speed = [](std::string_view text) {
    const Result<DriveChoice> choice = parse_drive_choice(text);
    EXPECT_TRUE(choice) << text;
    EXPECT_TRUE(!choice || choice->kind == DriveKind::sim);
    return choice ? choice->simulated : SimulatedDriveSpeed{};
  };
  EXPECT_EQ(speed("sim:3G,100us").bytes_per_second, std::uint64_t{3} << 30);
  EXPECT_EQ(speed("sim:3G,100us").latency, std::chrono::microseconds(100));
  EXPECT_EQ(speed("sim:1.5M,7ns").bytes_per_second, 1'572'864U);
  EXPECT_EQ(speed("sim:1,7ns").latency, std::chrono::nanoseconds(7));
  EXPECT_EQ(speed("sim:1,0s").latency, std::chrono::nanoseconds(0));
  EXPECT_EQ(speed("sim:1,12ms").latency, std::chrono::milliseconds(12));
  EXPECT_EQ(speed("sim:1,60s").latency, std::chrono::minutes(1));
}

TEST(DriveChoices, AreRefusedWithWhatIsWrong) {
  const auto message = [](std::string_view text) {
    const Result<DriveChoice> choice = parse_drive_choice(text);
    EXPECT_FALSE(choice) << text;
    return choice ? "" : choice.error().message();
  };
  EXPECT_EQ(
      message("floppy"),
      "drive 'floppy': is not known; expected uring, pread, buffered or sim:SIZE,TIME, as in sim:3G,100us");
  EXPECT_THAT(message(""), HasSubstr("drive '': is not known"));
  EXPECT_THAT(message("URING"), HasSubstr("is not known"));
  EXPECT_THAT(message("uring "), HasSubstr("is not known"));
  EXPECT_THAT(message("sim"), HasSubstr("has no speed"));
  EXPECT_THAT(message("sim:3G"), HasSubstr("has no latency"));
  EXPECT_THAT(message("sim:,1us"), HasSubstr("'' is no SIZE a second"));
  EXPECT_THAT(message("sim:fast,1us"), HasSubstr("'fast' is no SIZE a second"));
  EXPECT_THAT(message("sim:0,1us"), HasSubstr("moves no bytes"));
  for (const std::string_view time : {"", "us", "5", "-1us", "+1us", "1.5us", "1 us", "1us ", "1h", "1uss",
                                      "61s", "99999999999999999999s", "18446744073709551615s"}) {
    EXPECT_THAT(message(fmt::format("sim:1G,{}", time)), HasSubstr(fmt::format("'{}' is no time", time)));
  }
  EXPECT_THAT(message(std::string(100'000, 'x')), HasSubstr("xxx...'"));
}

}  // namespace
}  // namespace moeflux
