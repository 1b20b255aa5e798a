#pragma once
// The engine's options on the command line.
//
// One table (engine_flags.cpp) has a row per option: its flags, help, range and place in EngineOptions. The
// parser, the help and, through the long names, the MOEFLUX_ARG_* variables follow from it. Plain values;
// pure functions.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "engine/options.h"
#include "model/config.h"

namespace CLI {
class App;
}  // namespace CLI

namespace moeflux::cli {

// What was typed. An empty text leaves the default of `options`.
struct EngineFlags {
  EngineOptions options = {};  // numbers and switches, stored by the parser
  std::string precision = {}, kv = {}, isa = {}, expert_cache = {}, io = {}, prefetch = {};
  std::string trace = {};  // a file for the timeline; empty: none
};

// Adds --threads, --batch-size, --precision, --kv, --isa and --top-experts.
void add_engine_flags(CLI::App& command, EngineFlags& flags);
// Adds -c, the size of the context. Not part of add_engine_flags: `perplexity` has its own meaning for it.
void add_context_flag(CLI::App& command, EngineFlags& flags);
// Adds --expert-cache, --io, --prefetch, --verify-reads and --trace.
void add_streaming_flags(CLI::App& command, EngineFlags& flags);

// Adds the flag with this long name alone, without its short name and its group.
// Requires: `name` is in the table. `default_value`, if any, replaces the one in the help.
void add_engine_flag(CLI::App& command, EngineFlags& flags, std::string_view name,
                     std::string_view default_value = {});

// The options that the flags describe. Numbers that are too large for an engine are left for it to refuse.
Result<EngineOptions> engine_options_of(const EngineFlags& flags);

// True if --top-experts runs fewer experts than the model's own; `log` gets a warning then.
bool warn_of_top_experts(std::uint32_t top_experts, const ModelConfig& config, LogSink& log);

}  // namespace moeflux::cli
