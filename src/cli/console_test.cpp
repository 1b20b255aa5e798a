#include "cli/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/testing/states.h"

namespace moeflux::cli {
namespace {

using test::States;
using testing::IsEmpty;
using testing::StartsWith;

struct Printed {
  std::string output, error;
};
Printed printed_by(const std::function<void()>& print) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  print();
  std::fflush(stdout);
  return {testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

TEST(Console, PrintsAnswersToStandardOutputOnly) {
  const Printed printed = printed_by([] {
    EXPECT_EQ(finish(Result<std::string>("the answer\n")), ExitCode::ok);
    EXPECT_TRUE(write_output("and more"));
  });
  EXPECT_EQ(printed.output, "the answer\nand more");
  EXPECT_THAT(printed.error, IsEmpty());
}

TEST(Console, ReportsErrorsToStandardErrorOnly) {
  const Printed printed = printed_by([] {
    EXPECT_EQ(report(Error{ErrorCode::io_failed, "a.bin: cannot be read"}), ExitCode::io_error);
    EXPECT_EQ(finish(Result<std::string>(Error{ErrorCode::not_found, "b.bin"})), ExitCode::bad_model);
    EXPECT_EQ(finish(Status(Error{ErrorCode::no_space, "c.bin"})), ExitCode::no_room);
    complain("no such command");
  });
  EXPECT_THAT(printed.output, IsEmpty());
  EXPECT_EQ(printed.error,
            "moeflux: a.bin: cannot be read\nmoeflux: b.bin\nmoeflux: c.bin\nmoeflux: no such command\n");
}

TEST(Console, ReportsAnErrorOnOneLine) {
  const Printed printed = printed_by([] {
    report(Error{ErrorCode::not_found, "two\nlines: \x1b[2J is not there"});
  });
  EXPECT_THAT(printed.error, StartsWith("moeflux: two"));
  EXPECT_EQ(printed.error.find('\n'), printed.error.size() - 1);
  EXPECT_EQ(printed.error.find('\x1b'), std::string::npos);
}

TEST(Console, SaysNothingAboutACancelledCommand) {
  const Printed printed = printed_by([] {
    EXPECT_EQ(finish(Status(Error{ErrorCode::cancelled, "stopped"})), ExitCode::interrupted);
  });
  EXPECT_THAT(printed.output + printed.error, IsEmpty());
}

TEST(TerminalLog, WritesToStandardErrorOnly) {
  const Printed printed = printed_by([] {
    TerminalLog log;
    log.write(LogLevel::debug, "a detail");
    log.write(LogLevel::info, "a note");
    log.write(LogLevel::warning, "a warning");
    log.write(LogLevel::error, "an error");
  });
  EXPECT_THAT(printed.output, IsEmpty());
  EXPECT_EQ(printed.error, "a note\nmoeflux: warning: a warning\nmoeflux: error: an error\n");
}

}  // namespace
}  // namespace moeflux::cli
