#pragma once
// Flags that several commands share, under the names that users of llama.cpp know, and their environment
// variables.

#include <CLI/CLI.hpp>

#include "cli/talk.h"

namespace moeflux::cli {

// Adds everything that `run` and `chat` have in common.
void add_talk_flags(CLI::App& command, TalkFlags& talk);

// Adds --tools, --chat-template and --chat-template-kwargs, under the heading `group` if it is not null.
void add_rendering_flags(CLI::App& command, RenderingFlags& flags, const char* group);

// Adds --jobs. The default is one per logical core.
void add_jobs_flag(CLI::App& command, unsigned& jobs);

// Lets every option of `command` also be given as MOEFLUX_ARG_NAME, where NAME is its first long name in
// capitals with underscores: MOEFLUX_ARG_TOP_K=20 for --top-k. The command line takes precedence; if a flag
// is given twice, the last one counts.
void take_environment(CLI::App& command);

}  // namespace moeflux::cli
