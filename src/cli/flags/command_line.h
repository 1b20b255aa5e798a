#pragma once
// The command line before CLI11 parses it. Pure function; any thread.

#include <string>
#include <vector>

#include "base/result.h"

namespace moeflux::cli {

// The arguments without the program's name, with -hf and -sys replaced by their long names: CLI11 does not
// know short names of several letters. Any other such name is invalid_argument: CLI11 would take -ngl for -n
// with the value "gl".
Result<std::vector<std::string>> with_long_names(int argc, char** argv);

}  // namespace moeflux::cli
