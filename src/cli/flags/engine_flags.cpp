#include "cli/flags/engine_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>
#include <variant>

#include "base/overloaded.h"
#include "cli/flags/flag_groups.h"

namespace moeflux::cli {
namespace {

void add_flag(CLI::App& command, EngineFlags& flags, const EngineOption& option, const std::string& names,
              const std::string& group, const std::string& default_help) {
  std::string help = option.help;
  if (!default_help.empty()) help += fmt::format(" {}", default_help);
  std::string& text = flags[option.id];
  CLI::Option* const added = std::visit(
      overloaded{
          [&](const NumberOption& number) {
            return command.add_option(names, flags.options.*number.member, help)
                ->check(CLI::Range(number.lowest, number.highest));
          },
          [&](const SwitchOption& on) { return command.add_flag(names, flags.options.*on.member, help); },
          [&](const auto&) { return command.add_option(names, text, help); },
      },
      option.kind);
  if (!group.empty()) added->group(group);
}

void add_flags(CLI::App& command, EngineFlags& flags, OptionGroup group, const char* heading) {
  for (const EngineOption& option : kEngineOptions) {
    if (option.group != group) continue;
    const std::string separator = *option.short_flag == '\0' ? "" : ",";
    add_flag(command, flags, option, option.short_flag + separator + option.flag, heading,
             default_in_help(option));
  }
}

// The function that sets the option from its text; null if the parser stores the value.
SetEngineOption text_setter(const EngineOption& option) {
  return std::visit(overloaded{
                        [](const NumberOption&) -> SetEngineOption { return nullptr; },
                        [](const SwitchOption&) -> SetEngineOption { return nullptr; },
                        [](const auto& kind) -> SetEngineOption { return kind.set; },
                    },
                    option.kind);
}

// Of the layers with experts; 0 if there are none.
std::uint32_t own_experts_per_token(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers)
    if (const auto* moe = std::get_if<MoeConfig>(&layer.mlp)) return moe->experts_per_token;
  return 0;
}

}  // namespace

void add_engine_flags(CLI::App& command, EngineFlags& flags) {
  add_flags(command, flags, OptionGroup::compute, kHow);
}

void add_context_flag(CLI::App& command, EngineFlags& flags) {
  add_flags(command, flags, OptionGroup::context, kHow);
}

void add_streaming_flags(CLI::App& command, EngineFlags& flags) {
  add_flags(command, flags, OptionGroup::streaming, kStreaming);
  command
      .add_option("--trace", flags.trace,
                  "Write a timeline of reads, computations and waits for ui.perfetto.dev")
      ->group(kStreaming);
}

void add_engine_flag(CLI::App& command, EngineFlags& flags, OptionId id, std::string_view default_help) {
  const EngineOption& option = engine_option(id);
  add_flag(command, flags, option, option.flag, "",
           default_help.empty() ? default_in_help(option) : std::string(default_help));
}

Result<EngineOptions> engine_options_of(const EngineFlags& flags) {
  EngineOptions options = flags.options;
  for (const EngineOption& option : kEngineOptions) {
    const SetEngineOption set = text_setter(option);
    const std::string& text = flags.texts[static_cast<std::size_t>(option.id)];
    if (set == nullptr || text.empty()) continue;
    Status status = set(options, text);
    if (!status) return std::move(status).error().during(option.flag);
  }
  return options;
}

bool warn_of_top_experts(std::uint32_t top_experts, const ModelConfig& config, LogSink& log) {
  const std::uint32_t own = own_experts_per_token(config);
  if (top_experts == 0 || top_experts >= own) return false;
  log.write(LogLevel::warning,
            fmt::format("running with {} of {} experts per token: results differ from the full model's",
                        top_experts, own));
  return true;
}

}  // namespace moeflux::cli
