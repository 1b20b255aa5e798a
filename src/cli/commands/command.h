#pragma once
// A command of the program: its flags in the parser, and the function that runs it.
//
// Each command has one file, whose add_NAME() registers the flags and returns the Command. main.cpp lists all
// of them.

#include <functional>
#include <istream>

#include "base/log.h"
#include "cli/exit_code.h"
#include "io/file_system.h"
#include "library/model_choice.h"

namespace CLI {
class App;
}  // namespace CLI

namespace moeflux::cli {

// The parts of the process that a command uses. All of them outlive the command.
struct Shell {
  FileSystem& files;
  LogSink& log;
  std::istream& in;
  const Places& places;
};

struct Command {
  CLI::App* parser;  // owned by the program's CLI::App
  std::function<ExitCode(const Shell&)> run;
};

}  // namespace moeflux::cli
