#pragma once
// `moeflux eval`: a packed model against the outputs of another implementation, which a safetensors file
// holds.
//
//   input_ids [T]                       the prompt
//   logits [T, V]                       after each of its tokens, or
//   logit_positions [R], logits [R, V]  after some of them
//   greedy_ids [G], greedy_logits [G, V]     both optional
//   hidden_states [L + 1, T, H]              for --layers (measure/eval.h says of what)
//   layer.N.router.1, layer.N.router.2 [T, K]     optional: weights and ids of the chosen experts
//
// Ids are I32 or I64, everything else is F32; other tensors are not looked at. Pure functions but for files:
// any thread.

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "cli/run_options.h"
#include "io/file_system.h"
#include "measure/eval.h"
#include "model/config.h"

namespace moeflux::cli {

struct EvalCommand {
  std::string model, golden;
  bool json = false;
  std::string precision = "exact";
  std::string kv = "f32";
  std::uint32_t chunk = 0;  // 0: the whole prompt at once
  unsigned threads = 0;     // 0: one a physical core
  std::string isa;          // empty: the fastest that runs here
  std::uint32_t batch = 1;
  bool layers = false;
  std::optional<double> max_error;
  std::uint32_t top_experts = 0;  // 0: the model's own
  StreamingFlags streaming;
};

// What a command found, and whether that is good.
struct Verdict {
  std::string text;     // to print in either case
  std::string failure;  // why the exit code is 1; empty: it is 0
};

// Warnings go to `log` as soon as they are known.
Result<Verdict> run_eval(FileSystem& files, const EvalCommand& command, LogSink& log);

// The golden in a file, checked against itself and the model. Hidden states and routers are read if
// `with_layers`. What does not fit is corrupt_data, and names file, tensor, what was expected and what was
// found.
Result<Golden> read_golden(FileSystem& files, const std::string& path, const ModelConfig& config,
                           bool with_layers);

// `experts_per_token`: shown when it is not the model's own.
std::string render_page(const EvalResult& result, std::optional<std::uint32_t> experts_per_token);
std::string render_json(const EvalResult& result, std::optional<std::uint32_t> experts_per_token);

}  // namespace moeflux::cli
