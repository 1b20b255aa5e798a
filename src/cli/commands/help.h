#pragma once
// `moeflux help [COMMAND]`: the help of the program or of one command.

#include "cli/commands/command.h"

namespace moeflux::cli {

Command add_help(CLI::App& program);

}  // namespace moeflux::cli
