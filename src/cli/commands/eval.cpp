#include "cli/commands/eval.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "base/json/json.h"
#include "base/printable.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/statistics_line.h"
#include "cli/traced_engine.h"
#include "engine/engine.h"
#include "measure/golden_file.h"
#include "model/manifest.h"
#include "model/packed_model.h"

namespace moeflux::cli {
namespace {

constexpr std::uint32_t kLargest = std::numeric_limits<std::uint32_t>::max();

// Clamps a number that is too large; the engine rejects it.
std::uint32_t clamped(std::uint64_t number) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(number, kLargest));
}

// The reason for exit code 1, or "".
std::string failure_of(const EvalResult& result, const std::optional<double>& max_error) {
  if (!result.is_finite()) return "some of the numbers, computed or expected, are not finite";
  if (max_error && !(result.max_logit_error <= *max_error))
    return fmt::format("the largest logit error, {:.3g}, is above {:.3g}", result.max_logit_error,
                       *max_error);
  return "";
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.3g}", value) : "not finite";
}

// Prints the numbers whether they are good or not.
ExitCode finish_verdict(const Result<Verdict>& verdict) {
  if (!verdict) return report(verdict.error());
  const ExitCode printed = finish(write_output(verdict->text));
  if (printed != ExitCode::ok || verdict->failure.empty()) return printed;
  complain(verdict->failure);
  return ExitCode::failure;
}

Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

Result<Verdict> run_eval(FileSystem& files, const EvalFlags& flags, LogSink& log) {
  MF_TRY(EngineOptions options, engine_options_of(flags.engine));
  if (flags.max_error && !(*flags.max_error >= 0))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--max-error must be 0 or more, found {}", *flags.max_error)};

  MF_TRY(PackedModel model, PackedModel::open(files, flags.model));
  const ModelConfig& config = model.config();
  std::optional<std::uint32_t> experts_per_token;
  if (warn_of_top_experts(options.experts_per_token, config, log))
    experts_per_token = options.experts_per_token;
  const Result<Golden> read = read_golden(files, flags.golden, config, flags.layers);
  if (!read) return in_flag_file("GOLDEN", read.error());
  const Golden& golden = *read;
  const std::uint64_t prompt = golden.input.size();
  const std::uint64_t chunk = flags.chunk == 0 ? prompt : std::min<std::uint64_t>(flags.chunk, prompt);
  options.context = clamped(prompt + golden.greedy.size());
  options.step_rows = clamped(chunk * flags.batch);
  options.sessions = flags.batch;

  MF_TRY(const TracedEngine engine, TracedEngine::open(files, std::move(model), options, flags.engine.trace));
  if (!flags.json) log.write(LogLevel::info, "memory: " + engine->memory_plan().describe());
  show_streaming(*engine, flags.json, log);
  EvalOptions eval_options;
  eval_options.chunk = flags.chunk;
  eval_options.batch = flags.batch;
  eval_options.layers = flags.layers;
  Result<EvalResult> result = evaluate(*engine, golden, eval_options);
  MF_TRY_STATUS(engine.finish_trace());
  if (!result) return std::move(result).error().during(flags.golden);
  return Verdict{
      flags.json ? render_json(*result, experts_per_token) : render_page(*result, experts_per_token),
      failure_of(*result, flags.max_error)};
}

std::string render_page(const EvalResult& result, std::optional<std::uint32_t> experts_per_token) {
  std::string page;
  const auto line = [&](std::string_view label, std::string_view value) {
    page += fmt::format("{:<18}{}\n", label, value);
  };
  line("max logit error", number(result.max_logit_error));
  line("mean logit error", number(result.mean_logit_error));
  line("top-1 agreement", number(result.top1_agreement));
  line("greedy match", !result.greedy_match ? "no greedy ids" : *result.greedy_match ? "yes" : "no");
  line("positions", fmt::format("{}", result.positions));
  line("logits xxh3", hex_of(result.logits_xxh3));
  if (experts_per_token)
    line("experts per token", fmt::format("{}, not the model's own", *experts_per_token));
  if (result.layers.empty()) return page;
  page += "\nlayer   max hidden error   router ids   max router weight error\n";
  for (const LayerErrors& layer : result.layers) {
    const bool has_router = layer.router_ids_equal.has_value();
    page +=
        fmt::format("{:>5}   {:>16}   {:>10}   {:>23}\n", layer.layer.index(), number(layer.max_hidden_error),
                    !has_router               ? "-"
                    : *layer.router_ids_equal ? "equal"
                                              : "DIFFERENT",
                    has_router ? number(layer.max_router_weight_error.value_or(0)) : "-");
  }
  return page;
}

std::string render_json(const EvalResult& result, std::optional<std::uint32_t> experts_per_token) {
  Json json{{"max_logit_error", number_json(result.max_logit_error)},
            {"mean_logit_error", number_json(result.mean_logit_error)},
            {"top1_agreement", number_json(result.top1_agreement)},
            {"greedy_match", result.greedy_match ? Json(*result.greedy_match) : Json(nullptr)},
            {"positions", result.positions},
            {"logits_xxh3", hex_of(result.logits_xxh3)}};
  if (experts_per_token) json["experts_per_token"] = *experts_per_token;
  for (const LayerErrors& layer : result.layers)
    json["layers"].push_back(
        {{"layer", layer.layer.index()},
         {"max_hidden_error", number_json(layer.max_hidden_error)},
         {"router_ids_equal", layer.router_ids_equal ? Json(*layer.router_ids_equal) : Json(nullptr)},
         {"max_router_weight_error",
          layer.max_router_weight_error ? number_json(*layer.max_router_weight_error) : Json(nullptr)}});
  return json.dump() + "\n";
}

Command add_eval(CLI::App& program) {
  CLI::App* const parser =
      program.add_subcommand("eval", "Compare a packed model with another implementation's outputs");
  const auto flags = std::make_shared<EvalFlags>();
  parser->add_option("MODEL", flags->model, "A packed model")->required();
  parser->add_option("GOLDEN", flags->golden, "A safetensors file with input_ids, logits and more")
      ->required();
  parser->add_flag("--json", flags->json, "Print the same numbers as JSON, on one line");
  add_engine_flag(*parser, flags->engine, OptionId::precision, "(default: exact)");
  add_engine_flag(*parser, flags->engine, OptionId::kv_numbers);
  parser->add_option("--chunk", flags->chunk, "Positions of the prompt per step (default: all)")
      ->check(CLI::Range(1u, 1u << 20));
  add_engine_flag(*parser, flags->engine, OptionId::threads);
  add_engine_flag(*parser, flags->engine, OptionId::isa);
  parser->add_option("--batch", flags->batch, "Sessions per step: others beside the golden's (default 1)")
      ->check(CLI::Range(1u, 256u));
  parser->add_flag("--layers", flags->layers, "Also compare layer by layer");
  parser->add_option("--max-error", flags->max_error, "Exit with 1 if a logit error is above this");
  add_engine_flag(*parser, flags->engine, OptionId::experts_per_token);
  add_streaming_flags(*parser, flags->engine);
  return {parser,
          [flags](const Shell& shell) { return finish_verdict(run_eval(shell.files, *flags, shell.log)); }};
}

}  // namespace moeflux::cli
