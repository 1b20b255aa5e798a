#pragma once
// `moeflux perplexity MODEL FILE`: how well a packed model predicts a text.

#include <cstdint>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "cli/model_choice.h"
#include "cli/run_options.h"
#include "io/file_system.h"

namespace moeflux::cli {

struct PerplexityCommand {
  std::string model;  // packed, or a checkpoint: as -m
  std::string file;
  EngineFlags engine;
  std::uint32_t window = 512;
  bool price = false;  // beside exact products
  bool json = false;
};

Result<std::string> run_perplexity(FileSystem& files, const PerplexityCommand& command, const Places& places,
                                   LogSink& log);

}  // namespace moeflux::cli
