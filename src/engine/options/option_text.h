#pragma once
// Parses the engine options that users write as text, on the command line or in C.
//
// An invalid text is invalid_argument. The message states what was expected and found; the caller adds the
// name that the user knows the option by, as in .during("--precision"). Pure functions; any thread.

#include <string_view>

#include "base/result.h"
#include "engine/options.h"

namespace moeflux {

// Sets one option from its text.
using SetEngineOption = Status (*)(EngineOptions& options, std::string_view text);

Status set_precision(EngineOptions& options, std::string_view text);     // "exact" or "fast"
Status set_kv_dtype(EngineOptions& options, std::string_view text);      // "f32", "bf16" or "int8"
Status set_isa(EngineOptions& options, std::string_view text);           // a kernel table that runs here
Status set_drive(EngineOptions& options, std::string_view text);         // as parse_drive_choice takes it
Status set_expert_cache(EngineOptions& options, std::string_view text);  // a SIZE above 0, as in "2G"
Status set_prefetch(EngineOptions& options, std::string_view text);      // "previous" or "off"

}  // namespace moeflux
