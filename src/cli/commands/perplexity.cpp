#include "cli/perplexity_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/sizes.h"
#include "cli/progress_bar.h"
#include "cli/statistics_line.h"
#include "cli/traced_engine.h"
#include "engine/engine.h"
#include "generation/model_text.h"
#include "measure/perplexity.h"

namespace moeflux::cli {
namespace {

constexpr std::uint64_t kMaxTextBytes = 1024 * kMiB;

// `exact`: of the same text, where the price was asked for.
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
                                 const PerplexityCommand& command, const Text& text, LogSink& log) {
  MF_TRY(const TracedEngine engine,
         TracedEngine::open(files, model.packed, options, command.engine.streaming.trace));
  warn_of_top_experts(command.engine.top_experts, engine->config(), log);
  if (!command.json) log.write(LogLevel::info, "memory: " + engine->memory_plan().describe());
  show_streaming(*engine, command.json, log);
  ProgressBar bar("measuring");
  const std::uint64_t bytes_each =
      std::max<std::uint64_t>(1, text.bytes / std::max<std::size_t>(1, text.tokens.size()));
  Result<PerplexityResult> result = measure_perplexity(
      *engine, text.tokens, {command.window, nullptr}, [&](std::uint64_t done, std::uint64_t all) {
        bar.update(done * command.window * bytes_each, 0, all * command.window * bytes_each);
      });
  MF_TRY_STATUS(engine.finish_trace());
  if (!result) return std::move(result).error().during(command.file);
  return result;
}

}  // namespace

Result<std::string> run_perplexity(FileSystem& files, const PerplexityCommand& command, const Places& places,
                                   LogSink& log) {
  MF_TRY(EngineOptions options, engine_options_of(command.engine));
  if (options.context == 0) options.context = command.window;
  MF_TRY(const ChosenModel model, choose_model(files, {command.model, ""}, places, log));
  MF_TRY(const Tokenizer tokenizer, ModelText::open_tokenizer(files, model.packed));
  MF_TRY(const std::string letters, files.read_text(command.file, kMaxTextBytes));
  Text text{{tokenizer.begin_tokens().begin(), tokenizer.begin_tokens().end()}, letters.size()};
  MF_TRY_STATUS(tokenizer.encode(letters, AddedTokens::ordinary, text.tokens));
  MF_TRY(const PerplexityResult result, measure(files, model, options, command, text, log));
  std::optional<PerplexityResult> exact;
  if (command.price) {
    options.precision = Precision::exact;
    options.kv_numbers = KvNumbers::f32;
    MF_TRY(exact, measure(files, model, options, command, text, log));
  }
  return render(result, exact, text.tokens.size(), command.window, command.json);
}

}  // namespace moeflux::cli
