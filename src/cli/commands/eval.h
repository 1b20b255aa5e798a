#pragma once
// `moeflux eval MODEL GOLDEN`: compares a packed model with the outputs of another implementation, which a
// safetensors file holds (measure/golden_file.h). Pure functions except for file access; any thread.

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "cli/commands/command.h"
#include "cli/flags/engine_flags.h"
#include "io/file_system.h"
#include "measure/eval.h"

namespace moeflux::cli {

struct EvalFlags {
  std::string model, golden;
  bool json = false;
  std::uint32_t chunk = 0;  // 0: the whole prompt at once
  std::uint32_t batch = 1;
  bool layers = false;
  std::optional<double> max_error;
  // Exact by default; context and step_rows follow from the golden.
  EngineFlags engine{.options = {.precision = Precision::exact}};
};

// The output of `eval`, and whether the model passed.
struct Verdict {
  std::string text;     // always printed
  std::string failure;  // the reason for exit code 1; empty: passed
};

// Warnings go to `log` as soon as they are known.
Result<Verdict> run_eval(FileSystem& files, const EvalFlags& flags, LogSink& log);

// `experts_per_token`: present if it is not the model's own number.
std::string render_page(const EvalResult& result, std::optional<std::uint32_t> experts_per_token);
std::string render_json(const EvalResult& result, std::optional<std::uint32_t> experts_per_token);

Command add_eval(CLI::App& program);

}  // namespace moeflux::cli
