#pragma once
// `moeflux verify PATH`: reads a packed model and compares every checksum. Returns what to print.

#include <string>

#include "base/result.h"
#include "cli/commands/command.h"
#include "io/file_system.h"

namespace moeflux::cli {

struct VerifyFlags {
  std::string path;
  unsigned jobs = 1;
};
Result<std::string> run_verify(FileSystem& files, const VerifyFlags& flags);

Command add_verify(CLI::App& program);

}  // namespace moeflux::cli
