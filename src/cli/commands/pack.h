#pragma once
// `moeflux pack SRC DST`: turns a checkpoint into a packed model. run_pack() returns the text to print.

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/commands/command.h"
#include "io/file_system.h"
#include "pack/pack.h"
#include "source/source_model.h"

namespace moeflux::cli {

struct PackFlags {
  std::string source, destination;
  std::optional<std::uint32_t> bits;
  unsigned jobs = 1;
  bool use_2bit = false;
};
Result<std::string> run_pack(FileSystem& files, const PackFlags& flags);

// Packs `source` with a progress bar. Also used by `synth`.
Result<std::string> pack_with_bar(const SourceModel& source, FileSystem& source_files, FileSystem& files,
                                  const std::string& destination, const PackOptions& options);

// "28.3 MB in 0.4 s, 70.8 MB/s".
std::string written_text(std::uint64_t bytes, double seconds);

Command add_pack(CLI::App& program);

}  // namespace moeflux::cli
