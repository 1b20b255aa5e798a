#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/testing/states.h"
#include "io/drive/drive.h"

namespace moeflux {
namespace {

using test::States;

TEST(DriveChoices, AreParsedByName) {
  for (const DriveKind kind : {DriveKind::uring, DriveKind::pread, DriveKind::buffered}) {
    const Result<DriveChoice> choice = parse_drive_choice(name_of(kind));
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->kind, kind);
  }
}

TEST(DriveChoices, IncludeTheSpeedOfASimulatedDrive) {
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

TEST(DriveChoices, AreRejectedWithTheReason) {
  const auto message = [](std::string_view text) {
    const Result<DriveChoice> choice = parse_drive_choice(text);
    EXPECT_FALSE(choice) << text;
    return choice ? "" : choice.error().message();
  };
  EXPECT_THAT(message("floppy"),
              States("'floppy'", "unknown", "uring", "pread", "buffered", "sim:SIZE,TIME"));
  EXPECT_THAT(message(""), States("''", "unknown"));
  EXPECT_THAT(message("URING"), States("'URING'", "unknown"));
  EXPECT_THAT(message("uring "), States("'uring '", "unknown"));
  EXPECT_THAT(message("sim"), States("'sim'", "bandwidth", "latency", "missing"));
  EXPECT_THAT(message("sim:3G"), States("'sim:3G'", "latency", "missing"));
  EXPECT_THAT(message("sim:,1us"), States("'sim:,1us'", "bandwidth ''", "SIZE"));
  EXPECT_THAT(message("sim:fast,1us"), States("'sim:fast,1us'", "bandwidth 'fast'", "SIZE"));
  EXPECT_THAT(message("sim:0,1us"), States("'sim:0,1us'", "bandwidth", 0));
  for (const std::string_view time : {"", "us", "5", "-1us", "+1us", "1.5us", "1 us", "1us ", "1h", "1uss",
                                      "61s", "99999999999999999999s", "18446744073709551615s"}) {
    EXPECT_THAT(message(fmt::format("sim:1G,{}", time)),
                States(fmt::format("latency '{}'", time), "one minute"));
  }
  EXPECT_LT(message(std::string(100'000, 'x')).size(), 1000u);
}

}  // namespace
}  // namespace moeflux
