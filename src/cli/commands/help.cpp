#include "cli/commands/help.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/console.h"

namespace moeflux::cli {
namespace {

ExitCode help(const CLI::App& program, const std::string& name) {
  // App::help() would print the help of the parsed command, which is `help` itself.
  if (name.empty())
    return finish(write_output(
        program.get_formatter()->make_help(&program, program.get_name(), CLI::AppFormatMode::Normal)));
  for (const CLI::App* known : program.get_subcommands([](const CLI::App*) { return true; }))
    if (known->get_name() == name) return finish(write_output(known->help("moeflux")));
  complain(fmt::format("there is no command '{}'; 'moeflux help' lists them", name));
  return ExitCode::usage;
}

}  // namespace

Command add_help(CLI::App& program) {
  CLI::App* const parser = program.add_subcommand("help", "Print help, or the help of one command");
  const auto name = std::make_shared<std::string>();
  parser->add_option("COMMAND", *name, "The command to explain");
  return {parser, [&program, name](const Shell&) { return help(program, *name); }};
}

}  // namespace moeflux::cli
