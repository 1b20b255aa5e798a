// The program: parses arguments, calls the library, prints. Text for people goes to standard output,
// everything that is not the answer to standard error.

#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>
#include <string>

#include "base/printable.h"
#include "cli/exit_code.h"
#include "cli/inspect.h"
#include "io/posix_file_system.h"

namespace moeflux::cli {
namespace {

void complain(std::string_view message) { fmt::print(stderr, "moeflux: {}\n", message); }

// One line whatever a path or a name in it holds.
ExitCode report(const Error& error) {
  complain(printable(error.message(), std::string::npos));
  return exit_code_of(error);
}

// A full disk or a closed pipe behind standard output is a failure, not a silent success.
ExitCode print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return ExitCode::ok;
  complain("cannot write to standard output");
  return ExitCode::io_error;
}

ExitCode run_inspect(const InspectOptions& options) {
  PosixFileSystem files;
  const Result<std::string> page = inspect(files, options);
  return page ? print(*page) : report(page.error());
}

ExitCode run_help(CLI::App& app, const std::string& command) {
  // App::help() would explain the command that was given, which is `help` itself.
  if (command.empty())
    return print(app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal));
  for (const CLI::App* known : app.get_subcommands({}))
    if (known->get_name() == command) return print(known->help());
  complain(fmt::format("there is no command '{}'; 'moeflux help' lists them", command));
  return ExitCode::usage;
}

// A usage error says what was wrong and where help is; CLI11's own exit codes (105, 109, ...) mean nothing
// to scripts.
ExitCode usage_error(const CLI::ParseError& error) {
  std::string what = error.what();
  if (const std::size_t newline = what.find('\n'); newline != std::string::npos) what.resize(newline);
  complain(what + " (see 'moeflux help')");
  return ExitCode::usage;
}

ExitCode run(int argc, char** argv) {
  CLI::App app("moeflux runs Mixture-of-Experts language models that are larger than memory.", "moeflux");
  app.set_version_flag("--version", "moeflux " MOEFLUX_VERSION, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(0, 1);
  app.footer(
      "Exit codes: 0 ok, 1 failure, 2 usage, 3 model not found or invalid, 4 not enough memory or disk,\n"
      "5 I/O error.");

  InspectOptions inspect_options;
  CLI::App* inspect_command =
      app.add_subcommand("inspect", "Say what a model on disk is, without loading it");
  inspect_command
      ->add_option("PATH", inspect_options.path,
                   "A checkpoint directory (MLX, Hugging Face) or the original's artifacts")
      ->required();
  inspect_command->add_flag("--json", inspect_options.json, "Print the same numbers as JSON");
  inspect_command->add_flag("--check", inspect_options.check,
                            "Also read and decode every weight; stop at the first bad one");

  std::string help_command;
  CLI::App* help = app.add_subcommand("help", "Print help, of one command if it is named");
  help->add_option("COMMAND", help_command, "The command to explain");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    CLI::App* chosen = app.get_subcommands().empty() ? &app : app.get_subcommands().front();
    return print(chosen->help());
  } catch (const CLI::CallForVersion&) {
    return print("moeflux " MOEFLUX_VERSION "\n");
  } catch (const CLI::ParseError& error) {
    return usage_error(error);
  }

  if (inspect_command->parsed()) return run_inspect(inspect_options);
  if (help->parsed()) return run_help(app, help_command);
  complain("expected a command\n\n" + app.help());
  return ExitCode::usage;
}

}  // namespace
}  // namespace moeflux::cli

int main(int argc, char** argv) {
  // Fixed, because left alone glibc moves this threshold up with every large buffer that is freed, and the
  // next ones then stay behind as holes of the heap: opening the largest checkpoints took 108 MB, not 77.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  try {
    return static_cast<int>(moeflux::cli::run(argc, argv));
  } catch (const std::bad_alloc&) {
    std::fputs("moeflux: not enough memory\n", stderr);
    return static_cast<int>(moeflux::cli::ExitCode::no_room);
  }
}
