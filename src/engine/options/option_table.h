#pragma once
// The engine's options, one row each: names on the command line and in C, help, default, range, and how a
// value gets into EngineOptions.
//
// Command-line flags, MOEFLUX_ARG_* variables and help (cli/flags/engine_flags.h) follow from these rows, and
// so do the fields of mf_engine_options that are options (capi/engine_api.cpp). Plain values; pure functions;
// any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "base/result.h"
#include "engine/options.h"
#include "engine/options/option_text.h"

namespace moeflux {

// The rows, by their names in C, which are also the fields of mf_engine_options. There, 0 or a null text
// selects the default.
#define MF_ENGINE_OPTIONS(X) \
  X(threads)                 \
  X(step_rows)               \
  X(precision)               \
  X(kv_numbers)              \
  X(isa)                     \
  X(experts_per_token)       \
  X(sessions)                \
  X(context)                 \
  X(expert_cache_bytes)      \
  X(io)                      \
  X(prefetch)                \
  X(verify_reads)            \
  X(kv_budget_bytes)         \
  X(usable_memory_bytes)

enum class OptionId : std::uint8_t {
#define MF_OPTION_ID(name) name,
  MF_ENGINE_OPTIONS(MF_OPTION_ID)
#undef MF_OPTION_ID
};
#define MF_OPTION_COUNT(name) +1
inline constexpr std::size_t kEngineOptionCount = 0 MF_ENGINE_OPTIONS(MF_OPTION_COUNT);
#undef MF_OPTION_COUNT

// A number with a range on the command line; the engine checks it again against the model.
struct NumberOption {
  std::uint32_t EngineOptions::*member;
  std::uint32_t lowest, highest;
};
// A size: bytes in C, and text such as "2G" on the command line.
struct SizeOption {
  std::uint64_t EngineOptions::*member;
  SetEngineOption set;
};
struct SwitchOption {
  bool EngineOptions::*member;
};
struct TextOption {
  SetEngineOption set;
};
// One of a few texts. In C it is a number, the index into `texts`.
struct ChoiceOption {
  SetEngineOption set;
  std::array<const char*, 2> texts;
};

// Under which heading --help lists an option; `none`: it has no flag.
enum class OptionGroup { compute, context, streaming, none };

struct EngineOption {
  OptionId id;
  const char* name;           // in C
  const char* flag;           // "--threads"
  const char* short_flag;     // "-t", or ""
  const char* help;           // without the default
  const char* default_value;  // what a text option has if it is not given; ""
  const char* default_help;   // how a default that is not a plain value is described; ""
  OptionGroup group;
  std::variant<NumberOption, SizeOption, SwitchOption, TextOption, ChoiceOption> kind;
};

extern const std::array<EngineOption, kEngineOptionCount> kEngineOptions;  // in the order of OptionId
inline const EngineOption& engine_option(OptionId id) { return kEngineOptions[static_cast<std::size_t>(id)]; }

// Sets an option from its number in C. Returns invalid_argument if a ChoiceOption has no text with that
// number. Requires: not a TextOption.
Status set_option(EngineOptions& options, const EngineOption& option, std::uint64_t number);

// "(default: 512)", or "" if there is nothing to say.
std::string default_in_help(const EngineOption& option);

}  // namespace moeflux
