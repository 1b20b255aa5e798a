#include "cli/flags/engine_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/overloaded.h"
#include "cli/flags/flag_groups.h"
#include "engine/option_text.h"

namespace moeflux::cli {
namespace {

struct NumberFlag {
  std::uint32_t EngineOptions::*option;
  std::uint32_t lowest, highest;
};
struct SwitchFlag {
  bool EngineOptions::*option;
};
struct TextFlag {
  std::string EngineFlags::*text;
  SetEngineOption set;  // null: not an option of the engine
};

struct EngineFlag {
  const char* short_name;  // "-t", or ""
  const char* name;        // the long one
  const char* help;        // without the default
  const char* default_value;
  std::variant<NumberFlag, SwitchFlag, TextFlag> target;
};

using E = EngineOptions;
using F = EngineFlags;

constexpr std::array kEngineFlags{
    EngineFlag{"-t", "--threads", "Number of threads", "(default: one per physical core)",
               NumberFlag{&E::threads, 1, 1024}},
    EngineFlag{"-b", "--batch-size", "Prompt tokens per step", "(default 512)",
               NumberFlag{&E::step_rows, 1, 1u << 20}},
    EngineFlag{"", "--precision", "exact or fast", "(default: fast)", TextFlag{&F::precision, set_precision}},
    EngineFlag{"", "--kv", "Dtype of keys and values: f32, bf16 or int8", "(default: f32)",
               TextFlag{&F::kv, set_kv_dtype}},
    EngineFlag{"", "--isa", "Kernels, as 'moeflux doctor' lists them", "(default: the fastest)",
               TextFlag{&F::isa, set_isa}},
    EngineFlag{"", "--top-experts", "Fewer experts per token than the model's own: another, cheaper model",
               "", NumberFlag{&E::experts_per_token, 1, 65536}},
};

constexpr std::array kContextFlag{
    EngineFlag{"-c", "--ctx-size", "Positions for prompt and reply",
               "(default: 8192, or the model's own limit if that is less)",
               NumberFlag{&E::context, 0, 1u << 24}},
};

constexpr std::array kStreamingFlags{
    EngineFlag{"", "--expert-cache", "Memory for experts, as in 2G or 512M",
               "(default: what the memory plan leaves, or room for all)",
               TextFlag{&F::expert_cache, set_expert_cache}},
    EngineFlag{"", "--io", "uring, pread, buffered, or sim:BANDWIDTH,LATENCY as in sim:3G,100us",
               "(default: chosen by what fits in memory)", TextFlag{&F::io, set_drive}},
    EngineFlag{"", "--prefetch",
               "previous: while the drive idles, read the last token's experts for the next one, and in "
               "prompts the next layer's; off: read only what is needed",
               "(default: previous)", TextFlag{&F::prefetch, set_prefetch}},
    EngineFlag{"", "--verify-reads", "Check the checksum of every expert that is read", "",
               SwitchFlag{&E::verifies_reads}},
    EngineFlag{"", "--trace", "Write a timeline of reads, computations and waits for ui.perfetto.dev", "",
               TextFlag{&F::trace, nullptr}},
};

void add_flag(CLI::App& command, EngineFlags& flags, const EngineFlag& flag, const std::string& names,
              const std::string& group, std::string_view default_value) {
  std::string help = flag.help;
  if (!default_value.empty()) help += fmt::format(" {}", default_value);
  CLI::Option* const option = std::visit(
      overloaded{
          [&](const NumberFlag& number) {
            return command.add_option(names, flags.options.*number.option, help)
                ->check(CLI::Range(number.lowest, number.highest));
          },
          [&](const SwitchFlag& on) { return command.add_flag(names, flags.options.*on.option, help); },
          [&](const TextFlag& text) { return command.add_option(names, flags.*text.text, help); },
      },
      flag.target);
  if (!group.empty()) option->group(group);
}

void add_flags(CLI::App& command, EngineFlags& flags, std::span<const EngineFlag> table, const char* group) {
  for (const EngineFlag& flag : table) {
    const std::string separator = *flag.short_name == '\0' ? "" : ",";
    add_flag(command, flags, flag, flag.short_name + separator + flag.name, group, flag.default_value);
  }
}

// Of the layers with experts; 0 if there are none.
std::uint32_t own_experts_per_token(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers)
    if (const auto* moe = std::get_if<MoeConfig>(&layer.mlp)) return moe->experts_per_token;
  return 0;
}

}  // namespace

void add_engine_flags(CLI::App& command, EngineFlags& flags) {
  add_flags(command, flags, kEngineFlags, kHow);
}

void add_context_flag(CLI::App& command, EngineFlags& flags) {
  add_flags(command, flags, kContextFlag, kHow);
}

void add_streaming_flags(CLI::App& command, EngineFlags& flags) {
  add_flags(command, flags, kStreamingFlags, kStreaming);
}

void add_engine_flag(CLI::App& command, EngineFlags& flags, std::string_view name,
                     std::string_view default_value) {
  const auto* const found = std::ranges::find(kEngineFlags, name, &EngineFlag::name);
  MF_REQUIRE(found != kEngineFlags.end(), "the flag is in the table of engine flags");
  add_flag(command, flags, *found, found->name, "",
           default_value.empty() ? found->default_value : default_value);
}

Result<EngineOptions> engine_options_of(const EngineFlags& flags) {
  EngineOptions options = flags.options;
  for (const std::span<const EngineFlag> table :
       {std::span<const EngineFlag>(kEngineFlags), std::span<const EngineFlag>(kStreamingFlags)})
    for (const EngineFlag& flag : table) {
      const auto* const text = std::get_if<TextFlag>(&flag.target);
      if (text == nullptr || text->set == nullptr || (flags.*text->text).empty()) continue;
      Status set = text->set(options, flags.*text->text);
      if (!set) return std::move(set).error().during(flag.name);
    }
  return options;
}

bool warn_of_top_experts(std::uint32_t top_experts, const ModelConfig& config, LogSink& log) {
  const std::uint32_t own = own_experts_per_token(config);
  if (top_experts == 0 || top_experts >= own) return false;
  log.write(LogLevel::warning,
            fmt::format("running with {} of {} experts per token: this is not the model's own arithmetic",
                        top_experts, own));
  return true;
}

}  // namespace moeflux::cli
