#include "cli/commands/bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>

#include "base/json/json.h"
#include "base/printable.h"
#include "base/sizes.h"
#include "base/thread_pool.h"
#include "cli/chosen_model.h"
#include "cli/console.h"
#include "cli/flags/shared_flags.h"
#include "cli/input.h"
#include "cli/progress_bar.h"
#include "cli/statistics_line.h"
#include "cli/traced_engine.h"
#include "io/machine.h"
#include "io/process_memory.h"
#include "measure/bench.h"
#include "measure/drive_probe.h"
#include "measure/memory_rate.h"
#include "measure/mixed_bench.h"
#include "measure/routing_recording.h"
#include "measure/routing_source.h"

namespace moeflux::cli {
namespace {

constexpr unsigned kMemoryProbePasses = 7;
constexpr std::uint64_t kDriveProbeBytes = kGiB;
constexpr std::uint32_t kMaxRecordedRows = 1u << 16;
constexpr std::uint32_t kMaxMixedDecodes = 256;

// The machine's limits, measured before the model is loaded so that the probes' memory is free when the plan
// is made. 0: not measured.
struct Limits {
  std::uint64_t probe_bytes = kReadWeightsBytes;  // that are read to measure memory
  double memory_bytes_per_second = 0;             // only for models with too few weights to read instead
  double drive_bytes_per_second = 0;
  std::string drive;  // the measured one
};

Status switch_off(const std::vector<std::string>& techniques, EngineOptions& options) {
  for (const std::string& name : techniques) {
    if (name == "overlap")
      options.store.overlaps = options.prefetches = false;
    else if (name == "pieces")
      options.store.piece_bytes = kGiB;
    else if (name == "window")
      options.store.demand_window_bytes = kTiB;
    else if (name == "fixed-buffers")
      options.store.uses_fixed_buffers = false;
    else if (name == "sweeps")
      options.store.keeps_in_sweeps = false;
    else if (name == "prefetch")
      options.prefetches = false;
    else
      return Error{
          ErrorCode::invalid_argument,
          fmt::format(
              "--without takes overlap, pieces, window, fixed-buffers, sweeps or prefetch; found '{}'",
              printable(name))};
  }
  return {};
}

Result<Limits> measure_limits(FileSystem& files, const PackedModel& model, const EngineOptions& options) {
  Limits limits;
  const Machine machine = read_machine(files);
  limits.probe_bytes = read_weights_bytes(machine.cache_bytes);
  if (model.manifest().resident_bytes < limits.probe_bytes) {
    ThreadPool pool(options.threads != 0 ? options.threads : machine.physical_cores);
    MF_TRY(limits.memory_bytes_per_second,
           measure_read_bytes_per_second(pool, limits.probe_bytes, kMemoryProbePasses));
  }
  if (model.manifest().experts.empty()) return limits;
  MF_TRY(const DriveProbe probe,
         probe_drive(model, options.drive.value_or(DriveChoice()), kDriveProbeBytes, 1));
  limits.drive_bytes_per_second = probe.bytes_per_second;
  limits.drive = probe.drive;
  return limits;
}

// --mixed ROWS,DECODES.
Result<MixedOptions> parse_mixed(std::string_view text) {
  MixedOptions mixed;
  const std::size_t comma = text.find(',');
  const auto number = [](std::string_view digits, std::uint32_t most, std::uint32_t& value) {
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return failure == std::errc() && end == digits.data() + digits.size() && value >= 1 && value <= most;
  };
  if (comma != std::string_view::npos && number(text.substr(0, comma), kMaxStepRows / 2, mixed.chunk_rows) &&
      number(text.substr(comma + 1), kMaxMixedDecodes, mixed.decodes))
    return mixed;
  return Error(ErrorCode::invalid_argument,
               fmt::format("--mixed: expected ROWS,DECODES as in 512,4, found '{}'", printable(text)));
}

// The speed of another program, in tokens per second.
struct Rival {
  std::string name;
  double decode = 0;
  std::optional<double> prompt;
};

Result<Rival> parse_rival(std::string_view text) {
  const Error refusal{
      ErrorCode::invalid_argument,
      fmt::format("--against: expected NAME=DECODE or NAME=DECODE,PROMPT in tokens per second, found '{}'",
                  printable(text))};
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) return refusal;
  Rival rival{std::string(text.substr(0, equals)), 0, {}};
  const char* at = text.data() + equals + 1;
  const char* const end = text.data() + text.size();
  const auto number = [&](double& value) {
    const auto [rest, failure] = std::from_chars(at, end, value);
    at = rest;
    return failure == std::errc() && std::isfinite(value) && value > 0;
  };
  if (!number(rival.decode)) return refusal;
  if (at != end) {
    double prompt = 0;
    if (*at++ != ',' || !number(prompt) || at != end) return refusal;
    rival.prompt = prompt;
  }
  return rival;
}

struct Report {
  std::string model;
  const Engine& engine;
  const BenchFlags& flags;
  Limits limits;
  BenchResult result;
  std::optional<std::uint64_t> peak_resident_bytes;
  std::vector<Rival> rivals;
  std::optional<MixedResult> mixed;

  double products_per_second() const {
    return result.prompt.tokens_per_second.median * static_cast<double>(result.products_per_token);
  }
  // The plan may choose another drive than the one measured before.
  bool measured_its_drive() const { return limits.drive == engine.streaming().drive; }
  double touched_bytes_per_second() const {
    return result.decode.tokens_per_second.median * static_cast<double>(result.touched_bytes_per_token);
  }
  // Of the memory's rate. Requires: it was measured.
  double fraction_with_states() const {
    const auto weights = static_cast<double>(result.touched_bytes_per_token);
    return result.memory->fraction * (weights + static_cast<double>(result.state_bytes_per_token)) / weights;
  }
  double read_bytes_per_second(const BenchPhase& phase) const {
    const double seconds = std::chrono::duration<double>(phase.steps.took).count();
    return seconds > 0 ? static_cast<double>(phase.steps.experts.read_bytes()) / seconds : 0;
  }
};

std::string percent(double fraction) { return fmt::format("{:.0f} %", 100 * fraction); }

std::string describe(const BenchPhase& phase) {
  if (phase.tokens == 0 || phase.tokens_per_second.median == 0) return "nothing";
  return fmt::format("{} tok/s ± {:.1f} % · {} token{}{}", short_number(phase.tokens_per_second.median),
                     100 * phase.tokens_per_second.relative_spread(), with_thousands(phase.tokens),
                     phase.tokens == 1 ? "" : "s", streaming_part(phase.steps, phase.steps.rows));
}

std::string render_page(const Report& report) {
  std::string page;
  const auto line = [&](std::string_view label, const std::string& value) {
    page += fmt::format("{:<9}{}\n", label, value);
  };
  const Engine& engine = report.engine;
  line("model", fmt::format("{} · {} layers · {} · {} · {} thread{}", report.model,
                            engine.config().layers.size(), name_of(engine.options().precision),
                            engine.kernels().name, engine.threads(), engine.threads() == 1 ? "" : "s"));
  line("experts", streaming_line(engine.streaming()) + " · routing " + printable(report.flags.routing));
  line("prompt", describe(report.result.prompt));
  line("decode", describe(report.result.decode));
  std::string memory =
      fmt::format("{} of weights per token", human_bytes(report.result.touched_bytes_per_token));
  if (const auto& limit = report.result.memory)
    memory += fmt::format(", {} GB/s: {} of the {} GB/s that these threads read, {} with {} of states",
                          short_number(report.touched_bytes_per_second() / 1e9), percent(limit->fraction),
                          short_number(limit->per_second / 1e9), percent(report.fraction_with_states()),
                          human_bytes(report.result.state_bytes_per_token));
  line("memory", memory);
  if (const auto& limit = report.result.compute; limit && report.result.prompt.tokens > 1)
    line("compute",
         fmt::format("{} G products/s in the prompt: {} of the {} that these threads multiply bytes at",
                     short_number(report.products_per_second() / 1e9), percent(limit->fraction),
                     short_number(limit->per_second / 1e9)));
  if (const auto& mixed = report.mixed)
    line("mixed",
         fmt::format("{} ms together: {:.3f} of a prompt chunk alone ({} ms) and the decodes alone ({} ms)",
                     short_number(1e3 * mixed->both), mixed->ratio, short_number(1e3 * mixed->chunk),
                     short_number(1e3 * mixed->decodes)));
  for (const Rival& rival : report.rivals) {
    std::string ratios;
    const auto compare = [&](std::string_view phase, double ours, double theirs) {
      if (ours > 0)
        ratios += fmt::format("{}{} {:.2f} x its {} tok/s", ratios.empty() ? "" : ", ", phase, ours / theirs,
                              short_number(theirs));
    };
    compare("decode", report.result.decode.tokens_per_second.median, rival.decode);
    if (rival.prompt) compare("prompt", report.result.prompt.tokens_per_second.median, *rival.prompt);
    line("against", fmt::format("{}: {}", printable(rival.name), ratios));
  }
  if (report.limits.drive_bytes_per_second > 0) {
    const double read = report.read_bytes_per_second(report.result.decode);
    const std::string limit = short_number(report.limits.drive_bytes_per_second / 1e9);
    const std::string decoding = fmt::format("{} GB/s while decoding", short_number(read / 1e9));
    line("drive", report.measured_its_drive()
                      ? fmt::format("{}: {} of the {} GB/s that it reads at random", decoding,
                                    percent(read / report.limits.drive_bytes_per_second), limit)
                      : fmt::format("{}; {} GB/s at random with {}", decoding, limit, report.limits.drive));
  }
  if (report.peak_resident_bytes)
    line("peak", fmt::format("{} resident · {} major faults", human_bytes(*report.peak_resident_bytes),
                             with_thousands(report.result.major_faults)));
  return page;
}

Json json_of(const BenchPhase& phase) {
  return {{"tokens", phase.tokens},
          {"tokens_per_second", phase.tokens_per_second.median},
          {"lower_quartile", phase.tokens_per_second.lower},
          {"upper_quartile", phase.tokens_per_second.upper},
          {"least", phase.tokens_per_second.least},
          {"largest", phase.tokens_per_second.largest},
          {"steps_seconds", std::chrono::duration<double>(phase.steps.took).count()},
          {"rows", phase.steps.rows},
          {"experts", cli::json_of(phase.steps.experts)}};
}

std::string render_json(const Report& report) {
  const Engine& engine = report.engine;
  Json json{{"model", report.model},
            {"layers", engine.config().layers.size()},
            {"precision", name_of(engine.options().precision)},
            {"isa", engine.kernels().name},
            {"kv", name_of(engine.options().kv_dtype)},
            {"threads", engine.threads()},
            {"batch", report.flags.batch},
            {"routing", report.flags.routing},
            {"without", report.flags.without},
            {"drive", engine.streaming().drive},
            {"expert_slots", engine.streaming().slots},
            {"expert_records", engine.streaming().records},
            {"planned_bytes", engine.memory_plan().total_bytes()},
            {"expert_cache_bytes", engine.memory_plan().experts_bytes},
            {"prompt", json_of(report.result.prompt)},
            {"decode", json_of(report.result.decode)},
            {"touched_bytes_per_token", report.result.touched_bytes_per_token},
            {"state_bytes_per_token", report.result.state_bytes_per_token},
            {"major_faults", report.result.major_faults}};
  if (report.peak_resident_bytes) json["peak_resident_bytes"] = *report.peak_resident_bytes;
  if (const auto& limit = report.result.memory) {
    json["memory_bytes_per_second"] = limit->per_second;
    json["memory_fraction"] = limit->fraction;
    json["memory_fraction_with_states"] = report.fraction_with_states();
  }
  json["products_per_token"] = report.result.products_per_token;
  if (const auto& limit = report.result.compute) {
    json["products_per_second"] = limit->per_second;
    json["compute_fraction"] = limit->fraction;
  }
  if (const auto& mixed = report.mixed)
    json["mixed"] = {{"chunk_seconds", mixed->chunk},
                     {"decodes_seconds", mixed->decodes},
                     {"both_seconds", mixed->both},
                     {"ratio", mixed->ratio}};
  for (const Rival& rival : report.rivals) {
    Json& of = json["against"][rival.name];
    of["decode_ratio"] = report.result.decode.tokens_per_second.median / rival.decode;
    if (rival.prompt) of["prompt_ratio"] = report.result.prompt.tokens_per_second.median / *rival.prompt;
  }
  if (report.limits.drive_bytes_per_second > 0) {
    json["drive_bytes_per_second"] = report.limits.drive_bytes_per_second;
    json["measured_drive"] = report.limits.drive;
    if (report.measured_its_drive())
      json["drive_fraction"] =
          report.read_bytes_per_second(report.result.decode) / report.limits.drive_bytes_per_second;
  }
  return json.dump(2) + "\n";
}

// What chooses or records experts during the measurement; either may be null.
struct RoutingHooks {
  std::unique_ptr<RoutingOverride> chosen;
  std::unique_ptr<RoutingRecorder> recorder;
};

Result<RoutingHooks> routing_hooks(FileSystem& files, const BenchFlags& flags, const RoutingChoice& choice,
                                   const PackedModel& packed, const EngineOptions& options) {
  RoutingHooks hooks;
  if (flags.routing == "model" && flags.write_routing.empty()) return hooks;
  MF_TRY(const RoutingShape shape, routing_shape_of(packed.config(), options.experts_per_token));
  Result<std::unique_ptr<RoutingOverride>> made = make_routing(files, choice, shape, flags.seed);
  if (!made) return in_flag_file("--routing", std::move(made).error());
  hooks.chosen = std::move(*made);
  if (flags.write_routing.empty()) return hooks;
  if (hooks.chosen)
    return Error{ErrorCode::invalid_argument,
                 "--write-routing records the model's own choices: --routing model"};
  hooks.recorder = std::make_unique<RoutingRecorder>(shape, kMaxRecordedRows);
  return hooks;
}

// Raises what the engine must hold to what the mixed steps need.
void make_room(const MixedOptions& mixed, EngineOptions& options) {
  options.step_rows = std::max(options.step_rows, mixed.chunk_rows + mixed.decodes);
  options.context = std::max({options.context, mixed.chunk_rows, mixed.decode_position + 64});
  options.sessions = std::max(options.sessions, mixed.decodes + 3);  // one to fork, two for chunks
}

BenchOptions bench_options(const BenchFlags& flags, const Limits& limits, const RoutingHooks& routing) {
  BenchOptions bench;
  bench.prompt_tokens = flags.prompt;
  bench.decode_tokens = flags.decode;
  bench.repeats = flags.repeat;
  bench.warm_ups = flags.warm_up;
  bench.batch = flags.batch;
  bench.compares = !flags.no_limits;
  bench.read_weights_bytes = limits.probe_bytes;
  bench.seed = flags.seed;
  bench.routing = routing.recorder ? routing.recorder.get() : routing.chosen.get();
  return bench;
}

// Limits of small models are measured outside the rounds: use the mean of before and after, if memory
// suffices for a second probe.
void compare_with_memory(const Limits& limits, unsigned threads, BenchResult& result) {
  if (limits.memory_bytes_per_second <= 0) return;
  ThreadPool pool(threads);
  const Result<double> after = measure_read_bytes_per_second(pool, limits.probe_bytes, kMemoryProbePasses);
  const double before = limits.memory_bytes_per_second, rate = after ? (before + *after) / 2 : before;
  result.memory = {rate, result.decode.tokens_per_second.median *
                             static_cast<double>(result.touched_bytes_per_token) / rate};
}

}  // namespace

Result<std::string> bench_model(FileSystem& files, const BenchFlags& flags, const Places& places,
                                LogSink& log) {
  MF_TRY(EngineOptions options, engine_options_of(flags.engine));
  MF_TRY_STATUS(switch_off(flags.without, options));
  std::vector<Rival> rivals;
  for (const std::string& text : flags.against) {
    MF_TRY(Rival rival, parse_rival(text));
    rivals.push_back(std::move(rival));
  }
  MF_TRY(const RoutingChoice routing_choice, parse_routing(flags.routing));
  if (options.context == 0) options.context = std::max(1u, flags.prompt) + flags.decode;
  options.sessions = flags.batch;
  std::optional<MixedOptions> mixed_options;
  if (!flags.mixed.empty()) {
    MF_TRY(mixed_options, parse_mixed(flags.mixed));
    mixed_options->seed = flags.seed;
    make_room(*mixed_options, options);
  }
  MF_TRY(const ChosenModel model, choose_model_with_bar(files, {flags.model, ""}, places, log));
  Limits limits;
  MF_TRY(PackedModel packed, PackedModel::open(files, model.packed));
  MF_TRY(const RoutingHooks routing, routing_hooks(files, flags, routing_choice, packed, options));
  if (!flags.no_limits) {
    MF_TRY(limits, measure_limits(files, packed, options));
  }

  MF_TRY(const TracedEngine engine,
         TracedEngine::open(files, std::move(packed), options, flags.engine.trace));
  for (const std::string& note : engine->streaming().notes) log.write(LogLevel::warning, note);
  (void)reset_peak_resident_bytes(
      files);  // forget the probes' memory; if the kernel refuses, the peak includes it
  Result<BenchResult> result = [&] {
    ProgressBar bar("measuring");
    return run_bench(*engine, bench_options(flags, limits, routing),
                     [&](std::uint32_t done, std::uint32_t all) { bar.update(done, 0, all); });
  }();
  std::optional<MixedResult> mixed;
  if (result && mixed_options) {
    MF_TRY(mixed, run_mixed_bench(*engine, *mixed_options));
  }
  const Status traced = engine.finish_trace();
  if (!result) return std::move(result).error();
  MF_TRY_STATUS(traced);
  if (routing.recorder) MF_TRY_STATUS(routing.recorder->write(files, flags.write_routing));
  const std::optional<std::uint64_t> peak_resident_bytes = read_process_memory(files).peak_resident_bytes;
  compare_with_memory(limits, engine->threads(), *result);
  const Report report{model.name,          *engine,           flags, limits, *std::move(result),
                      peak_resident_bytes, std::move(rivals), mixed};
  return flags.json ? render_json(report) : render_page(report);
}

Command add_bench(CLI::App& program) {
  CLI::App* const parser =
      program.add_subcommand("bench", "Measure how fast a model runs here against the machine's limits");
  const auto flags = std::make_shared<BenchFlags>();
  parser->add_option("MODEL", flags->model, "A packed model, or a checkpoint (packed into the cache, once)")
      ->required();
  const auto add_count = [&](const char* name, std::uint32_t& value, const char* help, std::uint32_t least,
                             std::uint32_t most) {
    parser->add_option(name, value, help)->check(CLI::Range(least, most));
  };
  add_count("--prompt", flags->prompt, "Tokens of the prompt (default 512)", 0, 1u << 20);
  add_count("--decode", flags->decode, "Tokens decoded after it, one by one (default 64)", 0, 1u << 20);
  add_count("--repeat", flags->repeat, "Counted rounds (default 3)", 1, 1000);
  add_count("--warm-up", flags->warm_up, "Warm-up rounds before them (default 1)", 0, 1000);
  add_count("--parallel", flags->batch, "Sessions that decode together (default 1)", 1, 256);
  parser->add_option(
      "--routing", flags->routing,
      "Source of the expert choices: model, uniform, zipf:S as in zipf:1.1, or trace:FILE (default: model)");
  parser->add_option("--write-routing", flags->write_routing, "Write the model's choices, for trace:FILE");
  parser->add_option("--seed", flags->seed, "Seed of tokens and choices (default 0)");
  parser
      ->add_option(
          "--without", flags->without,
          "Switch a technique off: overlap, pieces, window, fixed-buffers, sweeps, prefetch; may be repeated")
      ->allow_extra_args(false);
  parser->add_flag("--no-limits", flags->no_limits,
                   "Do not measure the limits of memory, processor and drive");
  parser
      ->add_option("--against", flags->against,
                   "Compare with another program's tokens per second: NAME=DECODE or NAME=DECODE,PROMPT; may "
                   "be repeated")
      ->take_all();
  parser->add_option("--mixed", flags->mixed,
                     "ROWS,DECODES as in 512,4: also measure steps with a prompt chunk and decodes");
  parser->add_flag("--json", flags->json, "Print the same numbers as JSON");
  add_engine_flags(*parser, flags->engine);
  add_streaming_flags(*parser, flags->engine);
  return {parser, [flags](const Shell& shell) {
            return finish(bench_model(shell.files, *flags, shell.places, shell.log));
          }};
}

}  // namespace moeflux::cli
