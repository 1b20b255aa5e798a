#pragma once
// `moeflux detokenize DIR`: token ids on standard input to text. JSON lines as for `tokenize`.

#include <istream>
#include <string>

#include "base/function_ref.h"
#include "base/result.h"
#include "cli/commands/command.h"
#include "cli/input.h"
#include "io/file_system.h"

namespace moeflux::cli {

struct DetokenizeFlags {
  std::string directory;
  bool skip_special = false;
  bool jsonl = false;  // each input line is an array of ids, each output line a JSON string
};
// Ids are integers separated by any characters that are not digits, so every output form of tokenize is
// accepted. The text is written without a trailing newline.
Status run_detokenize(FileSystem& files, const DetokenizeFlags& flags, std::istream& in, Output out);

Command add_detokenize(CLI::App& program);

}  // namespace moeflux::cli
