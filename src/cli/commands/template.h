#pragma once
// `moeflux template DIR --messages FILE`: shows the prompt that a conversation becomes.

#include <istream>
#include <string>

#include "base/function_ref.h"
#include "base/result.h"
#include "cli/commands/command.h"
#include "cli/input.h"
#include "io/file_system.h"

namespace moeflux::cli {

struct TemplateFlags {
  std::string directory;
  std::string messages;  // a JSON file; "-" is standard input
  RenderingFlags rendering;
  bool no_generation_prompt = false;
  bool ids = false;  // the prompt's token ids, as JSON, instead of its text
};
// Writes the prompt exactly, without a trailing newline.
Status run_template(FileSystem& files, const TemplateFlags& flags, std::istream& in, Output out);

Command add_template(CLI::App& program);

}  // namespace moeflux::cli
