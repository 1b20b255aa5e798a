#pragma once
// `moeflux perplexity MODEL FILE`: measures how well a model predicts a text.

#include <cstdint>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "cli/commands/command.h"
#include "cli/flags/engine_flags.h"
#include "io/file_system.h"
#include "library/model_choice.h"

namespace moeflux::cli {

struct PerplexityFlags {
  std::string model;  // packed, or a checkpoint, as for -m
  std::string file;
  EngineFlags engine;
  std::uint32_t window = 512;
  bool price = false;  // compare with exact arithmetic
  bool json = false;
};

Result<std::string> run_perplexity(FileSystem& files, const PerplexityFlags& flags, const Places& places,
                                   LogSink& log);

Command add_perplexity(CLI::App& program);

}  // namespace moeflux::cli
