#include "base/log.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace moeflux {
namespace {

TEST(CollectingLog, KeepsMessagesInOrder) {
  CollectingLog log;
  LogSink& sink = log;
  sink.write(LogLevel::info, "first");
  sink.write(LogLevel::warning, std::string("second"));
  const std::vector<CollectingLog::Entry> expected = {{LogLevel::info, "first"},
                                                      {LogLevel::warning, "second"}};
  EXPECT_EQ(log.entries(), expected);
}

TEST(CollectingLog, KeepsTheMessagesOfAllThreads) {
  CollectingLog log;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) log.write(LogLevel::debug, "message");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(log.entries().size(), 200);
}

TEST(NullLog, AcceptsMessagesOfEveryLevel) {
  NullLog log;
  LogSink& sink = log;
  for (const LogLevel level : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
    sink.write(level, name_of(level));
  }
}

TEST(LogLevel, HasAName) {
  EXPECT_EQ(name_of(LogLevel::debug), "debug");
  EXPECT_EQ(name_of(LogLevel::info), "info");
  EXPECT_EQ(name_of(LogLevel::warning), "warning");
  EXPECT_EQ(name_of(LogLevel::error), "error");
}

}  // namespace
}  // namespace moeflux
