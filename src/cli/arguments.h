#pragma once
// The flags that several commands share, as llama.cpp's users know them, and the environment.
//
// Every option of a command that talks can also be given as MOEFLUX_ARG_NAME, where NAME is its long name in capitals
// with underscores: MOEFLUX_ARG_TOP_K=20. The command line goes first.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/benching.h"
#include "cli/chatting.h"
#include "cli/model_choice.h"
#include "cli/perplexity_page.h"
#include "cli/run_options.h"
#include "cli/running.h"
#include "cli/talk.h"
#include "cli/tokenizing.h"

namespace moeflux::cli {

CLI::App* add_run(CLI::App& app, RunCommand& run);
CLI::App* add_chat(CLI::App& app, ChatCommand& chat);
CLI::App* add_tokenize(CLI::App& app, TokenizeCommand& tokenize);
CLI::App* add_detokenize(CLI::App& app, DetokenizeCommand& detokenize);
CLI::App* add_template(CLI::App& app, TemplateCommand& render);
// Flags that several commands have.
void add_streaming(CLI::App& command, StreamingFlags& streaming);

CLI::App* add_bench(CLI::App& app, BenchCommand& bench);
CLI::App* add_perplexity(CLI::App& app, PerplexityCommand& perplexity);

// The command line with -hf and its like, short names of several letters, which CLI11 does not know, as long ones. One
// that nobody knows is invalid_argument: CLI11 would take -ngl for -n with the value "gl".
Result<std::vector<std::string>> with_long_names(int argc, char** argv);

}  // namespace moeflux::cli
