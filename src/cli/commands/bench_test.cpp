#include "cli/commands/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json/json.h"
#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"

namespace moeflux::cli {
namespace {

using test::States;

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

struct BenchCommand : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem files;
  CollectingLog log;
  BenchFlags flags;
  Places places{temporary / "cache", {}, {}};

  BenchCommand() {
    flags.model = (std::filesystem::path(MOEFLUX_REPOSITORY) / "models" / "tern").string();
    flags.prompt = 20;
    flags.decode = 4;
    flags.repeat = 2;
    flags.warm_up = 0;
    flags.no_limits = true;
    flags.engine.options.threads = 1;
  }
  Result<std::string> run() { return bench_model(files, flags, places, log); }
  Json json() {
    flags.json = true;
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

TEST_F(BenchCommand, PrintsSpeedsAndWhereTheExpertsCameFrom) {
  flags.engine[OptionId::expert_cache_bytes] = "7M";
  flags.engine[OptionId::io] = "pread";
  const Result<std::string> page = run();
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_THAT(*page, AllOf(States("128 of 512", "8 threads", "direct reads", "weights per token"),
                           HasSubstr("prompt   "), HasSubstr("decode   "),
                           ContainsRegex("[0-9.]+ [KM]B/token at [0-9.]+ GB/s, wait [0-9]+ %")));
}

TEST_F(BenchCommand, PrintsTheSameAsJson) {
  flags.engine[OptionId::expert_cache_bytes] = "7M";
  const Json found = json();
  EXPECT_EQ(found["expert_slots"], 128);
  EXPECT_EQ(found["expert_records"], 512);
  EXPECT_EQ(found["decode"]["rows"], 8);
  EXPECT_EQ(found["prompt"]["tokens"], 20);
  EXPECT_GT(found["decode"]["experts"]["demanded_bytes"].get<std::uint64_t>(), 0u);
  EXPECT_GT(found["touched_bytes_per_token"].get<std::uint64_t>(), 1'000'000u);
  EXPECT_FALSE(found.contains("memory_fraction"));
}

TEST_F(BenchCommand, ComparesWithTheMachinesLimits) {
  flags.no_limits = false;
  const Json found = json();
  EXPECT_GT(found["memory_bytes_per_second"].get<double>(), 0);
  EXPECT_GT(found["drive_bytes_per_second"].get<double>(), 0);
  EXPECT_GT(found["memory_fraction"].get<double>(), 0);
  EXPECT_GT(found["memory_fraction_with_states"].get<double>(), found["memory_fraction"].get<double>());
  EXPECT_GT(found["compute_fraction"].get<double>(), 0);
  EXPECT_GT(found["products_per_second"].get<double>(), 0);
}

TEST_F(BenchCommand, MeasuresStepsOfAPromptChunkAndDecodes) {
  flags.mixed = "16,2";
  const Json found = json()["mixed"];
  EXPECT_GT(found["chunk_seconds"].get<double>(), 0);
  EXPECT_GT(found["decodes_seconds"].get<double>(), 0);
  EXPECT_GT(found["both_seconds"].get<double>(), 0);
  EXPECT_GT(found["ratio"].get<double>(), 0);
  flags.json = false;
  const Result<std::string> page = run();
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_THAT(*page, HasSubstr("mixed    "));
  for (const char* wrong : {"16", "16,", ",2", "0,1", "1,0", "16,2x", "-1,2", "99999999999,2"}) {
    flags.mixed = wrong;
    EXPECT_THAT(refusal(), States("--mixed", std::string("'") + wrong + "'"));
  }
}

TEST_F(BenchCommand, ComparesWithOtherPrograms) {
  flags.against = {"slow=0.001,0.002", "a=b=1e9"};
  const Json found = json();
  EXPECT_GT(found["against"]["slow"]["decode_ratio"].get<double>(), 1000);
  EXPECT_GT(found["against"]["slow"]["prompt_ratio"].get<double>(), 1000);
  EXPECT_LT(found["against"]["a=b"]["decode_ratio"].get<double>(), 1);
  EXPECT_FALSE(found["against"]["a=b"].contains("prompt_ratio"));
  flags.json = false;
  const Result<std::string> page = run();
  ASSERT_TRUE(page);
  EXPECT_THAT(*page, AllOf(HasSubstr("against  slow: decode "), HasSubstr(" x its 0.00"),
                           HasSubstr("against  a=b: decode 0.00 x")));
}

TEST_F(BenchCommand, RejectsRivalsWithoutANumber) {
  for (const char* wrong : {"llama", "=3", "llama=", "llama=x", "llama=0", "llama=-1", "llama=nan",
                            "llama=1,", "llama=1,2,3", "llama=1x"}) {
    flags.against = {wrong};
    EXPECT_THAT(refusal(), States("--against", "NAME=DECODE", std::string("'") + wrong + "'"));
  }
}

TEST_F(BenchCommand, RecordsTheModelsChoicesAndPlaysThemAgain) {
  flags.write_routing = (temporary / "routing.txt").string();
  ASSERT_TRUE(run());
  flags.routing = "trace:" + flags.write_routing;
  flags.write_routing.clear();
  const Json played = json();
  EXPECT_EQ(played["routing"], flags.routing);
  for (const char* routing : {"uniform", "zipf:1.1"}) {
    flags.routing = routing;
    EXPECT_EQ(json()["routing"], routing);
  }
}

TEST_F(BenchCommand, RefusesAMissingRecordingAsAWrongFlag) {
  flags.routing = "trace:" + (temporary / "nothing.txt").string();
  EXPECT_EQ(run().error().code(), ErrorCode::invalid_argument);
  EXPECT_THAT(refusal(), States("--routing", "nothing.txt"));
}

TEST_F(BenchCommand, SwitchesTechniquesOffOneByOne) {
  flags.engine[OptionId::expert_cache_bytes] = "7M";
  for (const char* technique : {"overlap", "pieces", "window", "fixed-buffers", "sweeps", "prefetch"}) {
    flags.without = {technique};
    const Json found = json();
    EXPECT_EQ(found["without"], Json({technique}));
    if (std::string_view(technique) == "prefetch") {
      EXPECT_EQ(found["decode"]["experts"]["speculated_bytes"], 0);
    }
  }
}

TEST_F(BenchCommand, WritesATrace) {
  flags.engine[OptionId::expert_cache_bytes] = "7M";
  flags.engine.trace = (temporary / "trace.json").string();
  ASSERT_TRUE(run());
  const Json events = Json::parse(*files.read_text(flags.engine.trace, 1 << 24));
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

TEST_F(BenchCommand, RejectsUnknownNames) {
  flags.without = {"everything"};
  EXPECT_THAT(refusal(), States("--without", "overlap", "pieces", "window", "fixed-buffers", "sweeps",
                                "prefetch", "everything"));
  flags.without.clear();
  flags.routing = "random";
  EXPECT_THAT(refusal(), States("random"));
  flags.routing = "uniform";
  flags.write_routing = (temporary / "routing.txt").string();
  EXPECT_THAT(refusal(), States("--write-routing", "--routing model"));
  flags.write_routing.clear();
  flags.engine[OptionId::io] = "tape";
  EXPECT_THAT(refusal(), States("--io", "tape"));
  flags.engine[OptionId::io].clear();
  flags.engine[OptionId::expert_cache_bytes] = "1K";
  EXPECT_THAT(refusal(), States("too small"));
  flags.engine[OptionId::expert_cache_bytes].clear();
  flags.engine[OptionId::prefetch] = "always";
  EXPECT_THAT(refusal(), States("--prefetch", "previous", "off", "always"));
}

}  // namespace
}  // namespace moeflux::cli
