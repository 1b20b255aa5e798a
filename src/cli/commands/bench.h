#pragma once
// `moeflux bench MODEL`: measures how fast a model runs here, and what fraction of the machine's limits that
// is.

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "cli/commands/command.h"
#include "cli/flags/engine_flags.h"
#include "io/file_system.h"
#include "library/model_choice.h"

namespace moeflux::cli {

struct BenchFlags {
  std::string model;  // packed, or a checkpoint, as for -m
  std::uint32_t prompt = 512, decode = 64, repeat = 3, warm_up = 1, batch = 1;
  std::string routing = "model";
  std::string write_routing;  // a file for the model's choices; empty: none
  std::uint64_t seed = 0;
  std::vector<std::string> without;  // techniques to switch off
  bool no_limits = false;            // do not measure the machine
  std::vector<std::string> against;  // NAME=DECODE or NAME=DECODE,PROMPT, in tokens per second
  std::string mixed;                 // ROWS,DECODES: measure steps of both; empty: do not
  EngineFlags engine;
  bool json = false;
};

Result<std::string> bench_model(FileSystem& files, const BenchFlags& flags, const Places& places,
                                LogSink& log);

Command add_bench(CLI::App& program);

}  // namespace moeflux::cli
