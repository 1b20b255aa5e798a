// The program: parses the command line, runs the command that it names, and turns the result into an exit
// code.

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/bench.h"
#include "cli/commands/chat.h"
#include "cli/commands/detokenize.h"
#include "cli/commands/doctor.h"
#include "cli/commands/eval.h"
#include "cli/commands/help.h"
#include "cli/commands/inspect.h"
#include "cli/commands/pack.h"
#include "cli/commands/perplexity.h"
#include "cli/commands/run.h"
#include "cli/commands/synth.h"
#include "cli/commands/template.h"
#include "cli/commands/tokenize.h"
#include "cli/commands/verify.h"
#include "cli/console.h"
#include "cli/flags/command_line.h"
#include "io/posix_file_system.h"

namespace moeflux::cli {
namespace {

// In the order in which help lists them.
constexpr std::array kCommands{add_run,        add_chat,     add_inspect,    add_pack,  add_verify,
                               add_synth,      add_eval,     add_perplexity, add_bench, add_tokenize,
                               add_detokenize, add_template, add_doctor,     add_help};

void describe_program(CLI::App& program) {
  program.set_version_flag("--version", "moeflux " MOEFLUX_VERSION, "Print the version and exit");
  program.set_help_flag("-h,--help", "Print this help and exit");
  program.require_subcommand(0, 1);
  program.footer(
      "Exit codes: 0 ok, 1 failure, 2 usage, 3 model not found or invalid, 4 not enough memory or disk,\n"
      "5 I/O error, 130 interrupted.");
}

// Prints what was wrong and how to get help. CLI11's own exit codes (105, 109, ...) are not ours.
ExitCode usage_error(std::string what) {
  if (const std::size_t newline = what.find('\n'); newline != std::string::npos) what.resize(newline);
  complain(what + " (see 'moeflux help')");
  return ExitCode::usage;
}

// Parses the command line. Returns the exit code if the program ends here: after --help, --version or an
// error.
std::optional<ExitCode> parse(CLI::App& program, int argc, char** argv) {
  Result<std::vector<std::string>> arguments = with_long_names(argc, argv);
  if (!arguments) return usage_error(arguments.error().message());
  std::ranges::reverse(*arguments);  // as CLI11 takes them
  try {
    program.parse(*std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    if (program.get_subcommands().empty()) return finish(write_output(program.help()));
    return finish(write_output(program.get_subcommands().front()->help("moeflux")));
  } catch (const CLI::CallForVersion&) {
    return finish(write_output("moeflux " MOEFLUX_VERSION "\n"));
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what());
  }
  return std::nullopt;
}

Places places_of_this_machine() {
  std::error_code ignored;
  return find_places([](const char* name) -> const char* { return std::getenv(name); },
                     std::filesystem::read_symlink("/proc/self/exe", ignored));
}

ExitCode run(int argc, char** argv) {
  CLI::App program("moeflux runs Mixture-of-Experts language models that are larger than memory.", "moeflux");
  describe_program(program);
  std::vector<Command> commands;
  for (const auto add : kCommands) commands.push_back(add(program));
  if (const std::optional<ExitCode> ended = parse(program, argc, argv)) return *ended;

  PosixFileSystem files;
  TerminalLog log;
  const Places places = places_of_this_machine();
  for (const Command& command : commands)
    if (command.parser->parsed()) return command.run({files, log, std::cin, places});
  complain("expected a command\n\n" + program.help());
  return ExitCode::usage;
}

}  // namespace
}  // namespace moeflux::cli

int main(int argc, char** argv) {
  // A fixed threshold: by default, glibc raises it with every large buffer that is freed, and later buffers
  // then fragment the heap. Opening the largest checkpoints took 108 MB instead of 77 MB.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  std::signal(SIGPIPE, SIG_IGN);  // writing to a closed pipe is an error like any other
  try {
    return static_cast<int>(moeflux::cli::run(argc, argv));
  } catch (const std::bad_alloc&) {
    std::fputs("moeflux: not enough memory\n", stderr);
    return static_cast<int>(moeflux::cli::ExitCode::no_room);
  }
}
