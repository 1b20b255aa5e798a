#include "cli/statistics_line.h"

#include <gtest/gtest.h>

namespace moeflux::cli {
namespace {

GenerationResult result() {
  GenerationResult result;
  result.statistics.prompt_tokens = 1217;
  result.statistics.reused_tokens = 17;
  result.statistics.prompt_rows = 1200;
  result.statistics.prompt_seconds = 0.6;
  result.statistics.reply_tokens = 38;
  result.statistics.reply_seconds = 0.92;
  return result;
}

TEST(StatisticsLine, StatesTokensAndSpeed) {
  EXPECT_EQ(statistics_line(result(), {}),
            "38 tokens · 41.3 tok/s · prompt 1,217 tokens, 2,000 tok/s, 17 reused");
}

TEST(StatisticsLine, OmitsWhatIsZero) {
  GenerationResult nothing = result();
  nothing.statistics.reply_tokens = 0;
  nothing.statistics.reused_tokens = 1217;
  nothing.statistics.prompt_rows = 0;
  EXPECT_EQ(statistics_line(nothing, {}), "0 tokens · prompt 1,217 tokens, 1,217 reused");
  GenerationResult one = result();
  one.statistics.reply_tokens = one.statistics.prompt_tokens = 1;
  one.statistics.reused_tokens = 0;
  one.statistics.prompt_rows = 1;
  EXPECT_EQ(statistics_line(one, {}), "1 token · 1.09 tok/s · prompt 1 token, 1.67 tok/s");
}

TEST(StatisticsLine, StatesWhyAReplyDidNotEndByItself) {
  GenerationResult stopped = result();
  stopped.reason = FinishReason::cancelled;
  EXPECT_TRUE(statistics_line(stopped, {}).ends_with(" · stopped"));
  stopped.reason = FinishReason::length;
  EXPECT_TRUE(statistics_line(stopped, {}).ends_with(" · stopped at the limit of tokens"));
  stopped.reason = FinishReason::context_full;
  EXPECT_TRUE(statistics_line(stopped, {}).ends_with(" · the context is full"));
}

TEST(StatisticsLine, StatesStreamingIfNotAllExpertsFit) {
  GenerationResult streamed = result();
  StepStatistics& steps = streamed.statistics.reply_steps;
  steps.rows = 38;
  steps.took = std::chrono::seconds(2);
  steps.experts.hits = 840;
  steps.experts.misses = 150;
  steps.experts.late = 10;
  steps.experts.demanded_bytes = 38 * 12'000'000;
  steps.experts.speculated_bytes = 38 * 300'000;
  steps.experts.reading = std::chrono::milliseconds(200);
  steps.experts.waiting = std::chrono::milliseconds(620);
  StreamingReport report;
  report.slots = 10;
  report.records = 20;
  EXPECT_TRUE(
      statistics_line(streamed, report).ends_with(" · hits 84 %, 12.3 MB/token at 2.34 GB/s, wait 31 %"))
      << statistics_line(streamed, report);
  report.slots = 20;
  EXPECT_FALSE(statistics_line(streamed, report).find("hits") != std::string::npos);
}

TEST(StreamingLine, StatesRoomAndDrive) {
  StreamingReport report;
  EXPECT_EQ(streaming_line(report), "none: every token visits all weights");
  report.slots = 1280;
  report.records = 10'240;
  report.drive = "io_uring, direct reads";
  EXPECT_EQ(streaming_line(report), "room for 1,280 of 10,240 · io_uring, direct reads");
  report.slots = report.records;
  EXPECT_EQ(streaming_line(report), "room for all 10,240 · io_uring, direct reads");
}

TEST(MemoryLine, StatesEachPart) {
  MemoryPlan plan;
  plan.weights_bytes = 3'000'000;
  plan.derived_bytes = 1'000'000;
  plan.experts_bytes = 29'400'000;
  plan.kv_bytes = 16'000'000;
  plan.recurrent_bytes = 2'000'000;
  plan.workspace_bytes = 8'000'000;
  EXPECT_EQ(memory_line(plan),
            "59.4 MB: weights 4.00 MB, experts 29.4 MB, context 18.0 MB, workspace 8.00 MB");
  plan.usable_bytes = 2'000'000'000;
  EXPECT_TRUE(memory_line(plan).starts_with("59.4 MB of 2.00 GB: "));
}

TEST(ShortNumber, HasThreeDigits) {
  EXPECT_EQ(short_number(0.4242), "0.42");
  EXPECT_EQ(short_number(9.999), "10.0");
  EXPECT_EQ(short_number(41.24), "41.2");
  EXPECT_EQ(short_number(99.96), "100");
  EXPECT_EQ(short_number(1950.4), "1,950");
}

}  // namespace
}  // namespace moeflux::cli
