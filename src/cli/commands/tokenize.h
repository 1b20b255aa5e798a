#pragma once
// `moeflux tokenize DIR`: text on standard input to token ids.
//
// JSON lines are read and written one at a time, so a pipe of millions of lines needs the memory of one. A
// line has at most 64 MiB.

#include <istream>
#include <span>
#include <string>

#include "base/function_ref.h"
#include "base/ids.h"
#include "base/result.h"
#include "cli/commands/command.h"
#include "cli/input.h"
#include "io/file_system.h"

namespace moeflux::cli {

struct TokenizeFlags {
  std::string directory;  // with a tokenizer.json; packed or not
  bool special = false;   // special tokens in the text become their ids
  bool json = false;      // one array
  bool jsonl = false;     // each input line is a JSON string, each output line an array
};
// The whole input is one text, unless it is JSON lines. Ids are printed one per line, or as JSON.
Status run_tokenize(FileSystem& files, const TokenizeFlags& flags, std::istream& in, Output out);

// "[1,2,3]"
std::string json_array(std::span<const TokenId> tokens);

Command add_tokenize(CLI::App& program);

}  // namespace moeflux::cli
