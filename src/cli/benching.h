#pragma once
// `moeflux bench MODEL`: how fast a packed model runs here, and how much of the machine's limits that is.

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "cli/model_choice.h"
#include "cli/run_options.h"
#include "io/file_system.h"

namespace moeflux::cli {

struct BenchCommand {
  std::string model;  // packed, or a checkpoint: as -m
  std::uint32_t prompt = 512, decode = 64, repeat = 3, warm_up = 1, batch = 1;
  std::string routing = "model";
  std::string write_routing;  // a file for the choices that were made; empty: none
  std::uint64_t seed = 0;
  std::vector<std::string> without;  // techniques to be switched off
  bool no_limits = false;            // the machine is not measured
  std::vector<std::string> against;  // NAME=DECODE or NAME=DECODE,PROMPT: others' tokens a second
  EngineFlags engine;
  bool json = false;
};

Result<std::string> run_bench_command(FileSystem& files, const BenchCommand& command, const Places& places,
                                      LogSink& log);

}  // namespace moeflux::cli
