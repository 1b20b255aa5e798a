#pragma once
// `moeflux pack`, `moeflux verify` and `moeflux synth`: each does its work and returns what to print.

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux::cli {

struct PackCommand {
  std::string source, destination;
  std::optional<std::uint32_t> bits;
  unsigned jobs = 1;
};
Result<std::string> run_pack(FileSystem& files, const PackCommand& command);

struct VerifyCommand {
  std::string path;
  unsigned jobs = 1;
};
Result<std::string> run_verify(FileSystem& files, const VerifyCommand& command);

struct SynthCommand {
  std::string shape, destination;
  std::optional<std::uint32_t> layers, experts;
  std::uint64_t seed = 0;
  std::optional<std::string> source;  // mlx, bf16 or fp8: source files instead of a packed model
  unsigned jobs = 1;
};
Result<std::string> run_synth(FileSystem& files, const SynthCommand& command);

}  // namespace moeflux::cli
