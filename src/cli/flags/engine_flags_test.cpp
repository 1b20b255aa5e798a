#include "cli/flags/engine_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/testing/states.h"
#include "cli/flags/shared_flags.h"

namespace moeflux::cli {
namespace {

using test::States;

// The flags as `arguments` set them.
Result<EngineOptions> parsed(std::vector<std::string> arguments) {
  CLI::App command("test", "test");
  EngineFlags flags;
  add_engine_flags(command, flags);
  add_context_flag(command, flags);
  add_streaming_flags(command, flags);
  std::ranges::reverse(arguments);  // as CLI11 takes them
  command.parse(std::move(arguments));
  return engine_options_of(flags);
}

TEST(EngineFlags, SetTheOptionsOfAnEngine) {
  const Result<EngineOptions> options = parsed({"-t",
                                                "3",
                                                "-b",
                                                "7",
                                                "--precision",
                                                "exact",
                                                "--kv",
                                                "int8",
                                                "--isa",
                                                "scalar",
                                                "--top-experts",
                                                "2",
                                                "-c",
                                                "99",
                                                "--expert-cache",
                                                "2M",
                                                "--io",
                                                "pread",
                                                "--prefetch",
                                                "off",
                                                "--verify-reads"});
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->threads, 3u);
  EXPECT_EQ(options->step_rows, 7u);
  EXPECT_EQ(options->precision, Precision::exact);
  EXPECT_EQ(options->kv_dtype, KvDtype::int8);
  EXPECT_EQ(options->isa, "scalar");
  EXPECT_EQ(options->experts_per_token, 2u);
  EXPECT_EQ(options->context, 99u);
  EXPECT_EQ(options->expert_cache_bytes, std::uint64_t{2} << 20);
  ASSERT_TRUE(options->drive.has_value());
  EXPECT_EQ(options->drive->kind, DriveKind::pread);
  EXPECT_FALSE(options->prefetches);
  EXPECT_TRUE(options->verifies_reads);
}

TEST(EngineFlags, LeaveTheDefaults) {
  const Result<EngineOptions> options = parsed({});
  const EngineOptions defaults;
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->threads, defaults.threads);
  EXPECT_EQ(options->step_rows, defaults.step_rows);
  EXPECT_EQ(options->precision, defaults.precision);
  EXPECT_EQ(options->kv_dtype, defaults.kv_dtype);
  EXPECT_EQ(options->prefetches, defaults.prefetches);
  EXPECT_FALSE(options->drive.has_value());
  EXPECT_FALSE(options->verifies_reads);
}

TEST(EngineFlags, AreRejectedByName) {
  EXPECT_THAT(parsed({"--precision", "rough"}), States("--precision", "exact", "fast", "'rough'"));
  EXPECT_THAT(parsed({"--kv", "f8"}), States("--kv", "f32", "bf16", "int8", "'f8'"));
  EXPECT_THAT(parsed({"--isa", "abacus"}), States("--isa", "'abacus'", "scalar"));
  EXPECT_THAT(parsed({"--prefetch", "always"}), States("--prefetch", "previous", "off", "'always'"));
  EXPECT_THAT(parsed({"--io", "tape"}), States("--io", "tape"));
  EXPECT_THAT(parsed({"--expert-cache", "0"}), States("--expert-cache", "'0'"));
}

TEST(EngineFlags, HaveOneEnvironmentVariableEach) {
  CLI::App command("test", "test");
  EngineFlags flags;
  add_engine_flags(command, flags);
  add_context_flag(command, flags);
  add_streaming_flags(command, flags);
  take_environment(command);
  std::set<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_envname().empty()) names.insert(option->get_envname());
  EXPECT_EQ(names, (std::set<std::string>{"MOEFLUX_ARG_BATCH_SIZE", "MOEFLUX_ARG_CTX_SIZE",
                                          "MOEFLUX_ARG_EXPERT_CACHE", "MOEFLUX_ARG_IO", "MOEFLUX_ARG_ISA",
                                          "MOEFLUX_ARG_KV", "MOEFLUX_ARG_PRECISION", "MOEFLUX_ARG_PREFETCH",
                                          "MOEFLUX_ARG_THREADS", "MOEFLUX_ARG_TOP_EXPERTS",
                                          "MOEFLUX_ARG_TRACE", "MOEFLUX_ARG_VERIFY_READS"}));
}

}  // namespace
}  // namespace moeflux::cli
