#pragma once
// `moeflux run`: one question, one answer.
//
// Standard output is exactly the reply as the model writes it, and one newline; everything else goes to the
// log. With --json it is one object on one line instead: text, reasoning, tool calls, token ids, finish
// reason, statistics.

#include <atomic>
#include <istream>
#include <optional>
#include <string>

#include "base/function_ref.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/commands/command.h"
#include "cli/talk.h"
#include "io/file_system.h"

namespace moeflux::cli {

struct RunFlags {
  TalkFlags talk;
  std::optional<std::string> prompt;  // -p
  std::string file;                   // -f; "-" is standard input
  std::string system;                 // -sys
  std::string messages;               // a JSON file instead of prompt and system; "-" is standard input
  bool raw = false;                   // no template: the model continues the prompt
  bool hide_reasoning = false;
  bool json = false;
  bool quiet = false;  // no statistics line, no memory plan
};

// The input for the model.
struct Question {
  std::string text;  // with --raw
  Json messages;     // without --raw
};
// Reads `in` if there is no -p, -f or --messages.
Result<Question> question_of(FileSystem& files, const RunFlags& flags, std::istream& in);

// Answers the question. `out` gets the reply piece by piece; its failure ends the run.
Status answer_once(Talk& talk, const RunFlags& flags, const Question& question,
                   FunctionRef<Status(std::string_view)> out, LogSink& log, const std::atomic<bool>* cancel);

Command add_run(CLI::App& program);

}  // namespace moeflux::cli
