#include "measure/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr TraceClock::time_point kZero{std::chrono::seconds(1000)};

TraceClock::time_point at_ns(std::int64_t ns) { return kZero + std::chrono::nanoseconds(ns); }

TraceEvent event_of(TraceTrack track, std::int64_t begin_ns, std::int64_t end_ns) {
  return {.name = "thing", .track = track, .begin = at_ns(begin_ns), .end = at_ns(end_ns)};
}

TraceEvent read_of(std::int64_t begin_ns, std::int64_t end_ns, bool is_speculative = false) {
  TraceEvent event = event_of(TraceTrack::read, begin_ns, end_ns);
  event.is_speculative = is_speculative;
  return event;
}

struct TraceFiles : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  std::filesystem::path path = temporary / "trace.json";
  TraceBuffer buffer{64};

  std::unique_ptr<TraceFile> create() {
    auto file = TraceFile::create(files, path, kZero);
    EXPECT_TRUE(file) << file.error().message();
    return file ? *std::move(file) : nullptr;
  }

  // Writes `events`, one write for each vector, and finishes.
  Status write_all(const std::vector<std::vector<TraceEvent>>& writes) {
    MF_TRY(const auto file, TraceFile::create(files, path, kZero));
    for (const std::vector<TraceEvent>& events : writes) {
      for (const TraceEvent& event : events) buffer.add(event);
      MF_TRY_STATUS(file->write(buffer));
    }
    return file->finish();
  }

  Json parsed(const std::string& text) const {
    auto document = parse_json(text, "trace.json");
    EXPECT_TRUE(document) << document.error().message();
    return document ? *std::move(document) : Json();
  }
  Json parsed() const { return parsed(temporary.read("trace.json")); }
};

// The events of a trace whose "ph" is `phase`.
std::vector<Json> events_with(const Json& trace, std::string_view phase) {
  std::vector<Json> events;
  for (const Json& event : trace) {
    if (event.value("ph", "") == phase) events.push_back(event);
  }
  return events;
}

// The names of rows, by their number.
std::map<int, std::string> threads_of(const Json& trace) {
  std::map<int, std::string> threads;
  for (const Json& event : events_with(trace, "M")) {
    if (event.value("name", "") != "thread_name") continue;
    EXPECT_TRUE(threads.emplace(event.value("tid", -1), event["args"].value("name", "")).second)
        << "named twice";
  }
  return threads;
}

// The name of the row of each complete event, in the order of the file.
std::vector<std::string> rows_of(const Json& trace) {
  std::map<int, std::string> threads = threads_of(trace);
  std::vector<std::string> rows;
  for (const Json& event : events_with(trace, "X")) rows.push_back(threads[event.value("tid", -1)]);
  return rows;
}

TEST_F(TraceFiles, NameTheProgramAndTheirRowsEvenWithoutEvents) {
  ASSERT_TRUE(write_all({}));
  const Json trace = parsed();
  ASSERT_TRUE(trace.is_array());
  EXPECT_EQ(trace[0].dump(), R"({"ph":"M","pid":1,"tid":1,"name":"process_name","args":{"name":"moeflux"}})");
  EXPECT_EQ(threads_of(trace), (std::map<int, std::string>{{1, "steps"}, {2, "compute"}, {3, "waits"}}));
  EXPECT_THAT(events_with(trace, "X"), IsEmpty());
}

TEST_F(TraceFiles, WriteAReadWithAllThatIsKnownOfIt) {
  TraceEvent read = read_of(1'234'567, 3'234'567);
  read.name = "record";
  read.layer = 3;
  read.expert = 200;
  read.bytes = 7'000'000;
  ASSERT_TRUE(write_all({{read}}));
  EXPECT_THAT(temporary.read("trace.json"),
              HasSubstr("\n{\"ph\":\"X\",\"pid\":1,\"tid\":100,\"cat\":\"demand\",\"name\":\"record\","
                        "\"ts\":1234.567,\"dur\":2000.000,"
                        "\"args\":{\"layer\":3,\"expert\":200,\"bytes\":7000000,\"GB/s\":3.500}}\n"));
}

TEST_F(TraceFiles, LeaveOutWhatAnEventDoesNotHave) {
  TraceEvent layer = event_of(TraceTrack::compute, 5, 1'005);
  layer.layer = 0;
  ASSERT_TRUE(write_all({{event_of(TraceTrack::step, 0, 2'000), layer, read_of(7, 7)}}));
  const std::vector<Json> events = events_with(parsed(), "X");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["args"].dump(), "{}");
  EXPECT_EQ(events[1]["args"].dump(), R"({"layer":0})");
  EXPECT_EQ(events[2]["args"].dump(), R"({"bytes":0})") << "no time, no GB/s";
  EXPECT_EQ(events[2]["dur"].get<double>(), 0.0);
}

TEST_F(TraceFiles, GiveStepsComputationsAndWaitsARowEach) {
  ASSERT_TRUE(write_all({{event_of(TraceTrack::wait, 30, 40), event_of(TraceTrack::compute, 10, 20),
                          event_of(TraceTrack::compute, 50, 60), event_of(TraceTrack::step, 0, 100)}}));
  const Json trace = parsed();
  EXPECT_THAT(rows_of(trace), ElementsAre("steps", "compute", "waits", "compute"));
  std::vector<std::string> categories;
  for (const Json& event : events_with(trace, "X")) categories.push_back(event.value("cat", ""));
  EXPECT_THAT(categories, ElementsAre("step", "compute", "wait", "compute"));
}

TEST_F(TraceFiles, PutWhatEnclosesOthersFirst) {
  TraceEvent inner = event_of(TraceTrack::compute, 10, 20), outer = event_of(TraceTrack::compute, 10, 90);
  inner.name = "inner";
  outer.name = "outer";
  ASSERT_TRUE(write_all({{inner, outer}}));
  const std::vector<Json> events = events_with(parsed(), "X");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].value("name", ""), "outer");
}

TEST_F(TraceFiles, PutOverlappingReadsOnTheLowestFreeLane) {
  // By begin: 0-50 and 10-20 overlap; 20-30 begins as the second lane becomes free, 50-60 as the first.
  ASSERT_TRUE(write_all({{read_of(10, 20), read_of(20, 30), read_of(0, 50), read_of(50, 60)}}));
  const Json trace = parsed();
  EXPECT_THAT(rows_of(trace), ElementsAre("read 1", "read 2", "read 2", "read 1"));
}

TEST_F(TraceFiles, GiveSpeculationLanesOfItsOwn) {
  ASSERT_TRUE(write_all({{read_of(0, 50), read_of(1, 50, true), read_of(2, 50, true), read_of(3, 50)}}));
  const Json trace = parsed();
  EXPECT_THAT(rows_of(trace), ElementsAre("read 1", "speculative read 1", "speculative read 2", "read 2"));
  EXPECT_EQ(events_with(trace, "X")[1].value("cat", ""), "speculation");
}

TEST_F(TraceFiles, RememberLanesFromWriteToWrite) {
  // The read of the second write began while that of the first was in flight.
  ASSERT_TRUE(write_all({{read_of(0, 50)}, {read_of(40, 90), read_of(95, 99)}}));
  EXPECT_THAT(rows_of(parsed()), ElementsAre("read 1", "read 2", "read 1"));
}

TEST_F(TraceFiles, SayInWhichOrderRowsAreShown) {
  ASSERT_TRUE(write_all({{read_of(0, 9, true), read_of(1, 9), event_of(TraceTrack::step, 2, 9)}}));
  const Json trace = parsed();
  std::map<int, std::string> threads = threads_of(trace);
  std::map<int, std::string> by_index;
  for (const Json& event : events_with(trace, "M")) {
    if (event.value("name", "") == "thread_sort_index")
      by_index[event["args"].value("sort_index", -1)] = threads[event.value("tid", -1)];
  }
  std::vector<std::string> names;
  for (const auto& [index, name] : by_index) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("steps", "compute", "waits", "read 1", "speculative read 1"));
}

TEST_F(TraceFiles, CutOffWhatWasBeforeTheirZero) {
  TraceEvent read = read_of(-1'000, 1'000);
  read.bytes = 4'000;
  ASSERT_TRUE(write_all({{read, event_of(TraceTrack::wait, -500, -100)}}));
  const std::vector<Json> events = events_with(parsed(), "X");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["ts"].get<double>(), 0.0);
  EXPECT_EQ(events[0]["dur"].get<double>(), 1.0);
  EXPECT_EQ(events[0]["args"]["GB/s"].get<double>(), 2.0) << "of the whole read";
  EXPECT_EQ(events[1]["ts"].get<double>(), 0.0);
  EXPECT_EQ(events[1]["dur"].get<double>(), 0.0);
}

TEST_F(TraceFiles, EmptyTheBuffer) {
  const auto file = create();
  ASSERT_TRUE(file);
  buffer.add(read_of(0, 1));
  ASSERT_TRUE(file->write(buffer));
  EXPECT_TRUE(buffer.events().empty());
}

TEST_F(TraceFiles, SayHowManyEventsWereDroppedAndWhere) {
  TraceBuffer small(2);
  const auto file = create();
  ASSERT_TRUE(file);
  for (int i = 0; i < 5; ++i) small.add(read_of(i * 100, i * 100 + 50));
  ASSERT_TRUE(file->write(small));
  small.add(read_of(1'000, 1'001));
  ASSERT_TRUE(file->write(small));
  for (int i = 0; i < 3; ++i) small.add(read_of(2'000, 2'500));
  ASSERT_TRUE(file->write(small));
  ASSERT_TRUE(file->finish());
  const std::vector<Json> drops = events_with(parsed(), "i");
  ASSERT_EQ(drops.size(), 2u);
  EXPECT_EQ(drops[0].value("name", ""), "events dropped");
  EXPECT_EQ(drops[0]["args"].value("events", 0), 3);
  EXPECT_EQ(drops[0]["ts"].get<double>(), 0.150);
  EXPECT_EQ(drops[1]["args"].value("events", 0), 1);
  EXPECT_EQ(drops[1]["ts"].get<double>(), 2.5);
}

TEST_F(TraceFiles, LackOnlyTheirBracketUntilTheyAreFinished) {
  const auto file = create();
  ASSERT_TRUE(file);
  EXPECT_THAT(events_with(parsed(temporary.read("trace.json") + "]"), "X"), IsEmpty());
  for (int write = 1; write <= 3; ++write) {
    buffer.add(read_of(write * 10, write * 10 + 5));
    ASSERT_TRUE(file->write(buffer));
    EXPECT_EQ(events_with(parsed(temporary.read("trace.json") + "]"), "X").size(), std::size_t(write));
  }
  const std::string open = temporary.read("trace.json");
  ASSERT_TRUE(file->finish());
  EXPECT_EQ(temporary.read("trace.json"), open + "\n]\n");
}

TEST_F(TraceFiles, TakeAFullBufferInSeveralAppends) {
  TraceBuffer large(20'000);
  const auto file = create();
  ASSERT_TRUE(file);
  for (int i = 0; i < 20'000; ++i) large.add(read_of(i * 10, i * 10 + 10));
  ASSERT_TRUE(file->write(large));
  ASSERT_TRUE(file->finish());
  EXPECT_EQ(events_with(parsed(), "X").size(), 20'000u);
  EXPECT_GT(files.count(FileOperation::append), 5u);
  EXPECT_LT(files.count(FileOperation::append), 50u);
}

TEST_F(TraceFiles, ReplaceAnOlderTrace) {
  temporary.write("trace.json", std::string(100'000, 'x'));
  ASSERT_TRUE(write_all({{read_of(0, 1)}}));
  EXPECT_EQ(events_with(parsed(), "X").size(), 1u);
}

TEST_F(TraceFiles, ThatCannotBeCreatedAreAnErrorWithTheirName) {
  files.set_plan({.faults = {{.operation = FileOperation::create, .error_number = EACCES}}});
  const auto file = TraceFile::create(files, path, kZero);
  ASSERT_FALSE(file);
  EXPECT_THAT(file, States(path.native(), "trace"));
}

TEST_F(TraceFiles, OnADiskThatFillsUpFailWithTheirNameAndKeepWholeLinesReadable) {
  const std::vector<std::vector<TraceEvent>> writes = {{read_of(0, 9), read_of(1, 9)}, {read_of(20, 29)}};
  ASSERT_TRUE(write_all(writes));
  const std::string whole = temporary.read("trace.json");
  for (std::uint64_t disk_bytes = 0; disk_bytes < whole.size(); disk_bytes += 7) {
    files.set_plan({.disk_bytes = disk_bytes});
    const Status written = write_all(writes);
    buffer.clear();
    ASSERT_FALSE(written) << disk_bytes;
    EXPECT_EQ(written.error().code(), ErrorCode::no_space);
    EXPECT_THAT(written, States(path.native(), "trace"));
    const std::string torn = temporary.read("trace.json");
    EXPECT_EQ(torn, whole.substr(0, disk_bytes));
    const std::size_t last_comma = torn.rfind(",\n");
    if (last_comma == std::string::npos) continue;
    EXPECT_TRUE(parsed(torn.substr(0, last_comma) + "]").is_array());
  }
}

TEST_F(TraceFiles, StayFailedHoweverTheDiskRecovers) {
  const auto file = create();
  ASSERT_TRUE(file);
  files.set_plan({.faults = {{.operation = FileOperation::append, .error_number = EIO}}});
  buffer.add(read_of(0, 1));
  const Status first = file->write(buffer);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code(), ErrorCode::io_failed);
  EXPECT_TRUE(buffer.events().empty());
  files.set_plan({});
  files.clear_log();
  buffer.add(read_of(2, 3));
  const Status second = file->write(buffer);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message(), first.error().message());
  const Status finished = file->finish();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().message(), first.error().message());
  EXPECT_EQ(files.count(FileOperation::append), 0u);
}

TEST_F(TraceFiles, TakeNothingAfterTheirFinish) {
  const auto file = create();
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->finish());
  EXPECT_CONTRACT((void)file->write(buffer), "nothing is written to a trace after its finish");
  EXPECT_CONTRACT((void)file->finish(), "a trace is finished once");
}

TEST_F(TraceFiles, AreWrittenFromOneBuffer) {
  const auto file = create();
  ASSERT_TRUE(file);
  TraceBuffer full(0), other(0);
  full.add(read_of(0, 1));
  ASSERT_TRUE(file->write(full));
  EXPECT_CONTRACT((void)file->write(other), "a trace is always written from the same buffer");
}

// Begin and end in nanoseconds of all reads, by lane.
using Intervals = std::vector<std::pair<std::int64_t, std::int64_t>>;
std::map<int, Intervals> intervals_by_lane(const Json& trace) {
  const auto ns_of = [](const Json& us) { return static_cast<std::int64_t>(us.get<double>() * 1000 + 0.5); };
  std::map<int, Intervals> lanes;
  for (const Json& event : events_with(trace, "X")) {
    const std::int64_t begin = ns_of(event["ts"]);
    lanes[event.value("tid", -1)].emplace_back(begin, begin + ns_of(event["dur"]));
  }
  return lanes;
}

std::size_t most_at_once(const std::vector<TraceEvent>& events) {
  std::size_t most = 0;
  for (const TraceEvent& event : events) {
    most = std::max<std::size_t>(
        most, static_cast<std::size_t>(std::ranges::count_if(events, [&](const auto& other) {
          return other.begin <= event.begin && event.begin < other.end;
        })));
  }
  return most;
}

std::vector<TraceEvent> some_reads() {
  std::vector<TraceEvent> events;
  const int count = *rc::gen::inRange(0, 30);
  for (int i = 0; i < count; ++i) {
    const std::int64_t begin = *rc::gen::inRange(0, 200);
    events.push_back(read_of(begin, begin + *rc::gen::inRange(1, 50)));
  }
  return events;
}

RC_GTEST_FIXTURE_PROP(TraceFiles, NeverPutOverlappingReadsOnOneLane, ()) {
  const std::vector<std::vector<TraceEvent>> writes = {some_reads(), some_reads(), some_reads()};
  RC_ASSERT(write_all(writes).has_value());
  std::size_t found = 0;
  for (auto& [lane, intervals] : intervals_by_lane(parsed())) {
    std::ranges::sort(intervals);
    for (std::size_t i = 1; i < intervals.size(); ++i)
      RC_ASSERT(intervals[i - 1].second <= intervals[i].first);
    found += intervals.size();
  }
  RC_ASSERT(found == writes[0].size() + writes[1].size() + writes[2].size());
}

RC_GTEST_FIXTURE_PROP(TraceFiles, UseNoMoreLanesThanReadsAreUnderWayAtOnce, ()) {
  const std::vector<TraceEvent> reads = some_reads();
  RC_ASSERT(write_all({reads}).has_value());
  RC_ASSERT(intervals_by_lane(parsed()).size() == most_at_once(reads));
}

}  // namespace
}  // namespace moeflux
