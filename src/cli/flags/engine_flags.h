#pragma once
// The engine's options on the command line.
//
// The parser, the help and, through the long names, the MOEFLUX_ARG_* variables follow from the rows of
// engine/options/option_table.h. Plain values; pure functions.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "engine/options.h"
#include "engine/options/option_table.h"
#include "model/config.h"

namespace CLI {
class App;
}  // namespace CLI

namespace moeflux::cli {

// The flags as the user typed them. An empty text leaves the default of `options`.
struct EngineFlags {
  EngineOptions options = {};                              // numbers and switches, stored by the parser
  std::array<std::string, kEngineOptionCount> texts = {};  // the others, by OptionId
  std::string trace = {};                                  // a file for the timeline; empty: none

  std::string& operator[](OptionId id) { return texts[static_cast<std::size_t>(id)]; }
};

// Adds --threads, --batch-size, --precision, --kv, --isa and --top-experts.
void add_engine_flags(CLI::App& command, EngineFlags& flags);
// Adds -c, the size of the context. Not part of add_engine_flags: `perplexity` has its own meaning for it.
void add_context_flag(CLI::App& command, EngineFlags& flags);
// Adds --expert-cache, --io, --prefetch, --verify-reads and --trace.
void add_streaming_flags(CLI::App& command, EngineFlags& flags);

// Adds the flag of one option, without its short name and its group. `default_help`, if any, replaces the
// description of the default in the help.
void add_engine_flag(CLI::App& command, EngineFlags& flags, OptionId id, std::string_view default_help = {});

// The options that the flags describe. Numbers that are too large for an engine are left for it to refuse.
Result<EngineOptions> engine_options_of(const EngineFlags& flags);

// True if --top-experts runs fewer experts than the model's own; `log` gets a warning then.
bool warn_of_top_experts(std::uint32_t top_experts, const ModelConfig& config, LogSink& log);

}  // namespace moeflux::cli
