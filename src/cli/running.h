#pragma once
// `moeflux run`: one question, one answer.
//
// Standard output is exactly the reply, as the model writes it, and one newline; everything else goes to the log. With
// --json it is one object instead, on one line: text, reasoning, tool calls, token ids, why it ended, statistics.

#include <atomic>
#include <istream>
#include <optional>
#include <string>

#include "base/function_ref.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/talk.h"
#include "io/file_system.h"

namespace moeflux::cli {

struct RunCommand {
  TalkFlags talk;
  std::optional<std::string> prompt;  // -p
  std::string file;                   // -f; "-" is the input
  std::string system;                 // -sys
  std::string messages;               // a JSON file instead of prompt and system; "-" is the input
  bool raw = false;                   // no template: the model goes on with the prompt
  bool hide_reasoning = false;
  bool json = false;
  bool quiet = false;  // no statistics line, no memory plan
};

// What the command is to say to the model.
struct Question {
  std::string text;  // raw
  Json messages;     // else
};
// `in` is read where neither -p nor -f nor --messages is given.
Result<Question> question_of(FileSystem& files, const RunCommand& command, std::istream& in);

// `out` gets the reply piece by piece; its failure ends the run.
Status run_run(Talk& talk, const RunCommand& command, const Question& question,
               FunctionRef<Status(std::string_view)> out, LogSink& log, const std::atomic<bool>* cancel);

}  // namespace moeflux::cli
