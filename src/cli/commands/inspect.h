#pragma once
// `moeflux inspect PATH`: describes a model, as a page of at most 100 columns or as JSON with the same
// numbers. Rendering is separate from reading, so tests can render any summary. Pure functions; any thread.

#include <string>

#include "base/result.h"
#include "cli/commands/command.h"
#include "io/file_system.h"
#include "model/summary.h"

namespace moeflux::cli {

struct InspectFlags {
  std::string path;
  bool json = false;
  bool check = false;  // read and decode every weight
};

// What --check decoded.
struct CheckReport {
  std::uint64_t matrices = 0;
  std::uint64_t weights = 0;
};

// The page or the JSON, ready to print.
Result<std::string> inspect(FileSystem& files, const InspectFlags& flags);

std::string render_page(const ModelSummary& summary, const CheckReport* checked);
std::string render_json(const ModelSummary& summary, const CheckReport* checked);

Command add_inspect(CLI::App& program);

}  // namespace moeflux::cli
