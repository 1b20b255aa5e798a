#pragma once
// `moeflux synth SHAPE DST`: writes a model of a published shape with random weights. Returns what to print.

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/commands/command.h"
#include "io/file_system.h"

namespace moeflux::cli {

struct SynthFlags {
  std::string shape, destination;
  std::optional<std::uint32_t> layers, experts;
  std::uint64_t seed = 0;
  std::optional<std::string> source;  // mlx, bf16 or fp8: source files instead of a packed model
  unsigned jobs = 1;
};
Result<std::string> run_synth(FileSystem& files, const SynthFlags& flags);

Command add_synth(CLI::App& program);

}  // namespace moeflux::cli
