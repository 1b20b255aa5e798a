#include "cli/commands/perplexity.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/json/json.h"
#include "base/sizes.h"
#include "cli/chosen_model.h"
#include "cli/console.h"
#include "cli/flags/shared_flags.h"
#include "cli/input.h"
#include "cli/progress_bar.h"
#include "cli/statistics_line.h"
#include "cli/traced_engine.h"
#include "engine/engine.h"
#include "generation/model_text.h"
#include "measure/perplexity.h"

namespace moeflux::cli {
namespace {

constexpr std::uint64_t kMaxMeasuredTextBytes = 1024 * kMiB;

// `exact`: the result on the same text with exact arithmetic, if --price.
std::string render(const PerplexityResult& result, const std::optional<PerplexityResult>& exact,
                   std::size_t text_tokens, std::uint32_t window, bool as_json) {
  if (as_json) {
    Json json{{"perplexity", result.perplexity},
              {"standard_error", result.standard_error},
              {"scored_tokens", result.scored_tokens},
              {"text_tokens", text_tokens},
              {"windows", result.windows},
              {"window", window}};
    if (exact) {
      json["exact_perplexity"] = exact->perplexity;
      json["ratio_to_exact"] = result.perplexity / exact->perplexity;
      json["agreement_with_exact"] = agreement(result, *exact);
    }
    return json.dump() + "\n";
  }
  std::string page = fmt::format(
      "perplexity     {:.4f} ± {:.4f}\nscored tokens  {} of {}, in {} window{} of {}\n", result.perplexity,
      result.standard_error, with_thousands(result.scored_tokens), with_thousands(text_tokens),
      with_thousands(result.windows), result.windows == 1 ? "" : "s", window);
  if (exact)
    page += fmt::format(
        "exact          {:.4f}; this is {:.4f} of it, with the same likeliest token in {:.2f} %\n",
        exact->perplexity, result.perplexity / exact->perplexity, 100 * agreement(result, *exact));
  return page;
}

struct Text {
  std::vector<TokenId> tokens;
  std::uint64_t bytes;
};

Result<PerplexityResult> measure(FileSystem& files, const ChosenModel& model, const EngineOptions& options,
                                 const PerplexityFlags& flags, const Text& text, LogSink& log) {
  MF_TRY(PackedModel packed, PackedModel::open(files, model.packed));
  MF_TRY(const TracedEngine engine,
         TracedEngine::open(files, std::move(packed), options, flags.engine.trace));
  warn_of_top_experts(flags.engine.options.experts_per_token, engine->config(), log);
  if (!flags.json) log.write(LogLevel::info, "memory: " + engine->memory_plan().describe());
  show_streaming(*engine, flags.json, log);
  ProgressBar bar("measuring");
  const std::uint64_t bytes_each =
      std::max<std::uint64_t>(1, text.bytes / std::max<std::size_t>(1, text.tokens.size()));
  Result<PerplexityResult> result = measure_perplexity(
      *engine, text.tokens, {flags.window, nullptr}, [&](std::uint64_t done, std::uint64_t all) {
        bar.update(done * flags.window * bytes_each, 0, all * flags.window * bytes_each);
      });
  MF_TRY_STATUS(engine.finish_trace());
  if (!result) return std::move(result).error().during(flags.file);
  return result;
}

}  // namespace

Result<std::string> run_perplexity(FileSystem& files, const PerplexityFlags& flags, const Places& places,
                                   LogSink& log) {
  MF_TRY(EngineOptions options, engine_options_of(flags.engine));
  if (options.context == 0) options.context = flags.window;
  MF_TRY(const ChosenModel model, choose_model_with_bar(files, {flags.model, ""}, places, log));
  MF_TRY(const Tokenizer tokenizer, ModelText::open_tokenizer(files, model.packed));
  MF_TRY(const std::string letters, read_flag_file(files, "FILE", flags.file, kMaxMeasuredTextBytes));
  Text text{{tokenizer.begin_tokens().begin(), tokenizer.begin_tokens().end()}, letters.size()};
  MF_TRY_STATUS(tokenizer.encode(letters, AddedTokens::ordinary, text.tokens));
  MF_TRY(const PerplexityResult result, measure(files, model, options, flags, text, log));
  std::optional<PerplexityResult> exact;
  if (flags.price) {
    options.precision = Precision::exact;
    options.kv_dtype = KvDtype::f32;
    MF_TRY(exact, measure(files, model, options, flags, text, log));
  }
  return render(result, exact, text.tokens.size(), flags.window, flags.json);
}

Command add_perplexity(CLI::App& program) {
  CLI::App* const parser = program.add_subcommand("perplexity", "Measure how well a model predicts a text");
  const auto flags = std::make_shared<PerplexityFlags>();
  parser->add_option("MODEL", flags->model, "A packed model, or a checkpoint (packed into the cache, once)")
      ->required();
  parser->add_option("FILE", flags->file, "The text")->required();
  parser->add_option("-c,--ctx-size", flags->window, "Tokens per window (default 512)")
      ->check(CLI::Range(3u, 1u << 20));
  add_engine_flags(*parser, flags->engine);
  add_streaming_flags(*parser, flags->engine);
  parser->add_flag("--price", flags->price, "Also run with --precision exact --kv f32, and compare");
  parser->add_flag("--json", flags->json, "Print the same numbers as JSON");
  take_environment(*parser);
  return {parser, [flags](const Shell& shell) {
            return finish(run_perplexity(shell.files, *flags, shell.places, shell.log));
          }};
}

}  // namespace moeflux::cli
