#include "cli/benching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "io/posix_file_system.h"
#include "io/temporary_directory.h"

namespace moeflux::cli {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

struct BenchCommandGiven : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem files;
  CollectingLog log;
  BenchCommand command;
  Places places{temporary / "cache", {}, {}};

  BenchCommandGiven() {
    command.model = (std::filesystem::path(MOEFLUX_REPOSITORY) / "models" / "tern").string();
    command.prompt = 20;
    command.decode = 4;
    command.repeat = 2;
    command.warm_up = 0;
    command.no_limits = true;
    command.engine.threads = 1;
  }
  Result<std::string> run() { return run_bench_command(files, command, places, log); }
  Json json() {
    command.json = true;
    const Result<std::string> text = run();
    EXPECT_TRUE(text) << text.error().message();
    return text ? Json::parse(*text) : Json();
  }
  std::string refusal() {
    const Result<std::string> text = run();
    EXPECT_FALSE(text);
    return text ? "" : text.error().message();
  }
};

TEST_F(BenchCommandGiven, PrintsSpeedsAndWhereTheExpertsCameFrom) {
  command.engine.streaming.expert_cache = "7M";
  command.engine.streaming.io = "pread";
  const Result<std::string> page = run();
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_THAT(*page, AllOf(HasSubstr("room for 128 of 512"), HasSubstr("8 threads, direct reads"),
                           HasSubstr("prompt   "), HasSubstr("decode   "),
                           ContainsRegex("[0-9.]+ [KM]B/token at [0-9.]+ GB/s, wait [0-9]+ %"),
                           HasSubstr("of weights a token")));
}

TEST_F(BenchCommandGiven, SaysTheSameAsJson) {
  command.engine.streaming.expert_cache = "7M";
  const Json found = json();
  EXPECT_EQ(found["expert_slots"], 128);
  EXPECT_EQ(found["expert_records"], 512);
  EXPECT_EQ(found["decode"]["rows"], 8);
  EXPECT_EQ(found["prompt"]["tokens"], 20);
  EXPECT_GT(found["decode"]["experts"]["demanded_bytes"].get<std::uint64_t>(), 0u);
  EXPECT_GT(found["touched_bytes_per_token"].get<std::uint64_t>(), 1'000'000u);
  EXPECT_FALSE(found.contains("memory_fraction"));
}

TEST_F(BenchCommandGiven, ComparesWithWhatTheMachineCouldDo) {
  command.no_limits = false;
  const Json found = json();
  EXPECT_GT(found["memory_bytes_per_second"].get<double>(), 0);
  EXPECT_GT(found["drive_bytes_per_second"].get<double>(), 0);
  EXPECT_GT(found["memory_fraction"].get<double>(), 0);
  EXPECT_GT(found["compute_fraction"].get<double>(), 0);
  EXPECT_GT(found["products_per_second"].get<double>(), 0);
}

TEST_F(BenchCommandGiven, ComparesWithOtherPrograms) {
  command.against = {"slow=0.001,0.002", "a=b=1e9"};
  const Json found = json();
  EXPECT_GT(found["against"]["slow"]["decode_ratio"].get<double>(), 1000);
  EXPECT_GT(found["against"]["slow"]["prompt_ratio"].get<double>(), 1000);
  EXPECT_LT(found["against"]["a=b"]["decode_ratio"].get<double>(), 1);
  EXPECT_FALSE(found["against"]["a=b"].contains("prompt_ratio"));
  command.json = false;
  const Result<std::string> page = run();
  ASSERT_TRUE(page);
  EXPECT_THAT(*page, AllOf(HasSubstr("against  slow: decode "), HasSubstr(" x its 0.00"),
                           HasSubstr("against  a=b: decode 0.00 x")));
}

TEST_F(BenchCommandGiven, RefusesRivalsWithoutANumber) {
  for (const char* wrong : {"llama", "=3", "llama=", "llama=x", "llama=0", "llama=-1", "llama=nan",
                            "llama=1,", "llama=1,2,3", "llama=1x"}) {
    command.against = {wrong};
    EXPECT_THAT(refusal(), AllOf(HasSubstr("--against must be NAME=DECODE"), HasSubstr(wrong))) << wrong;
  }
}

TEST_F(BenchCommandGiven, RecordsTheModelsChoicesAndPlaysThemAgain) {
  command.write_routing = (temporary / "routing.txt").string();
  ASSERT_TRUE(run());
  command.routing = "trace:" + command.write_routing;
  command.write_routing.clear();
  const Json played = json();
  EXPECT_EQ(played["routing"], command.routing);
  for (const char* routing : {"uniform", "zipf:1.1"}) {
    command.routing = routing;
    EXPECT_EQ(json()["routing"], routing);
  }
}

TEST_F(BenchCommandGiven, SwitchesTechniquesOffOneByOne) {
  command.engine.streaming.expert_cache = "7M";
  for (const char* technique : {"overlap", "pieces", "window", "fixed-buffers", "sweeps", "prefetch"}) {
    command.without = {technique};
    const Json found = json();
    EXPECT_EQ(found["without"], Json({technique}));
    if (std::string_view(technique) == "prefetch") {
      EXPECT_EQ(found["decode"]["experts"]["speculated_bytes"], 0);
    }
  }
}

TEST_F(BenchCommandGiven, WritesATrace) {
  command.engine.streaming.expert_cache = "7M";
  command.engine.streaming.trace = (temporary / "trace.json").string();
  ASSERT_TRUE(run());
  const Json events = Json::parse(*files.read_text(command.engine.streaming.trace, 1 << 24));
  std::size_t reads = 0, computes = 0, steps = 0;
  for (const Json& event : events) {
    const std::string name = event.value("name", "");
    reads += name == "read";
    computes += name == "experts";
    steps += name == "step";
  }
  EXPECT_GT(reads, 0u);
  EXPECT_GT(computes, 0u);
  EXPECT_EQ(steps, 2u * (1 + 4));
}

TEST_F(BenchCommandGiven, RefusesWhatItDoesNotKnow) {
  command.without = {"everything"};
  EXPECT_THAT(refusal(), HasSubstr("--without takes overlap"));
  command.without.clear();
  command.routing = "random";
  EXPECT_THAT(refusal(), HasSubstr("random"));
  command.routing = "uniform";
  command.write_routing = (temporary / "routing.txt").string();
  EXPECT_THAT(refusal(), HasSubstr("--write-routing"));
  command.write_routing.clear();
  command.engine.streaming.io = "tape";
  EXPECT_THAT(refusal(), HasSubstr("--io"));
  command.engine.streaming = {
      .expert_cache = "1K", .io = {}, .prefetch = {}, .verify_reads = false, .trace = {}};
  EXPECT_THAT(refusal(), HasSubstr("too small"));
  command.engine.streaming = {
      .expert_cache = {}, .io = {}, .prefetch = "always", .verify_reads = false, .trace = {}};
  EXPECT_THAT(refusal(), HasSubstr("--prefetch must be previous or off"));
}

}  // namespace
}  // namespace moeflux::cli
