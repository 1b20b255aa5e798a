#include <fmt/format.h>

#include <variant>

#include "base/sizes.h"
#include "cli/commands/chat.h"
#include "cli/escape_controls.h"
#include "cli/statistics_line.h"

namespace moeflux::cli {
namespace {

std::string describe_model(const Talk& talk, const Engine& engine) {
  const ModelConfig& config = engine.config();
  std::uint32_t experts = 0, per_token = 0;
  for (const LayerConfig& layer : config.layers)
    if (const auto* moe = std::get_if<MoeConfig>(&layer.mlp)) {
      experts = moe->experts;
      per_token = engine.options().experts_per_token;
    }
  std::string text = fmt::format("{} ({}, {} layers", escape_controls(talk.model().name),
                                 name_of(config.family), config.layers.size());
  if (experts != 0) text += fmt::format(", {} experts, {} per token", experts, per_token);
  text += ")";
  return text;
}

// Questions that the model answers correctly in at least 98 of 100 cases: models/tern/README.md. tests/chat
// asks all of them.
constexpr std::string_view kDemoSuggestions =
    "\n\n"
    "Tern is a demo model of 32 MB, trained for moeflux; it is not an assistant. It does these well:\n"
    "  Tell me a story about a dragon and a lighthouse.\n"
    "  Hi, my name is Ada and I like tea.    (and later: What is my name?)\n"
    "  What is 12 plus 30?\n"
    "  What is the capital of Norway?\n";

}  // namespace

std::string banner(Talk& talk) {
  const Engine& engine = talk.engine();
  return fmt::format("moeflux {} · {} · {} thread{} · {}\nmodel   {}\nmemory  {}\nexperts {}\n{}",
                     MOEFLUX_VERSION, engine.kernels().name, engine.threads(),
                     engine.threads() == 1 ? "" : "s", name_of(engine.options().precision),
                     describe_model(talk, engine), memory_line(engine.memory_plan()),
                     streaming_line(engine.streaming()),
                     "/help for commands · Ctrl-C stops an answer · Ctrl-D leaves") +
         (talk.model().is_demo ? std::string(kDemoSuggestions) : "");
}

}  // namespace moeflux::cli
