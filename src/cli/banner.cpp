#include <fmt/format.h>

#include <variant>

#include "base/sizes.h"
#include "cli/chatting.h"
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
  std::string text = fmt::format("{} ({}, {} layers", harmless(talk.model().name), name_of(config.family),
                                 config.layers.size());
  if (experts != 0) text += fmt::format(", {} experts, {} a token", experts, per_token);
  text += ")";
  if (talk.model().is_demo) text += ": the bundled demo, not an assistant";
  return text;
}

}  // namespace

std::string banner(Talk& talk) {
  const Engine& engine = talk.engine();
  return fmt::format(
      "moeflux {} · {} · {} thread{} · {}\nmodel   {}\nmemory  {}\nexperts {}\n{}", MOEFLUX_VERSION,
      engine.kernels().name, engine.threads(), engine.threads() == 1 ? "" : "s",
      name_of(engine.options().precision), describe_model(talk, engine), memory_line(engine.memory_plan()),
      streaming_line(engine.streaming()), "/help for commands · Ctrl-C stops an answer · Ctrl-D leaves");
}

}  // namespace moeflux::cli
