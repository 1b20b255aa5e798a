#include "cli/commands/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "base/sizes.h"
#include "cli/answer.h"
#include "cli/console.h"
#include "cli/conversation.h"
#include "cli/escape_controls.h"
#include "cli/flags/flag_groups.h"
#include "cli/flags/shared_flags.h"
#include "cli/input.h"
#include "cli/statistics_line.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/wrapped_output.h"

namespace moeflux::cli {
namespace {

constexpr std::uint64_t kMaxPromptBytes = 64 * kMiB;

// Writes the text of a reply as it arrives. After the output failed, it writes nothing more and stops the
// generation.
class ReplyWriter final : public GenerationListener {
 public:
  explicit ReplyWriter(FunctionRef<Status(std::string_view)> out) : out_(out) {}

  void said(const ReplyEvent& event) override {
    if (const auto* text = std::get_if<ReplyText>(&event); text != nullptr && status_) {
      status_ = out_(text->text);
      has_written_ = true;
    }
  }
  bool wants_more() const override { return status_.has_value(); }
  Status status() const { return status_; }
  bool has_written() const { return has_written_; }

 private:
  FunctionRef<Status(std::string_view)> out_;
  Status status_;
  bool has_written_ = false;
};

Result<std::string> read_prompt(FileSystem& files, const RunFlags& flags, std::istream& in) {
  if (flags.prompt) return *flags.prompt;
  MF_TRY(NamedText read,
         read_file_or_input(files, "-f", flags.file.empty() ? "-" : flags.file, in, kMaxPromptBytes));
  if (read.text.ends_with('\n')) read.text.pop_back();  // from the editor, not the user
  return std::move(read.text);
}

std::string json_reply(const GenerationResult& result, const AnswerCollector& answer) {
  Json json{{"text", answer.text()}};
  if (!answer.reasoning().empty()) json["reasoning"] = answer.reasoning();
  if (!answer.tool_calls().empty()) json["tool_calls"] = answer.tool_calls();
  Json ids = Json::array();
  for (const TokenId token : result.tokens) ids.push_back(token.index());
  json["ids"] = std::move(ids);
  json["finish_reason"] = name_of(result.reason);
  json["seed"] = result.seed;
  const GenerationStatistics& numbers = result.statistics;
  json["prompt_tokens"] = numbers.prompt_tokens;
  json["reply_tokens"] = numbers.reply_tokens;
  json["prompt_seconds"] = numbers.prompt_seconds;
  json["reply_seconds"] = numbers.reply_seconds;
  json["experts"] = json_of(numbers.steps.experts);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Handles Ctrl-C only once everything is open; until then it ends the program as usual.
ExitCode run(const Shell& shell, const RunFlags& flags) {
  const bool reads_input = (!flags.prompt && flags.file.empty() && flags.messages.empty()) ||
                           flags.file == "-" || flags.messages == "-";
  if (reads_input && ::isatty(STDIN_FILENO) == 1)
    shell.log.write(LogLevel::info, "reading from the terminal; Ctrl-D ends it");
  const Result<Question> question = question_of(shell.files, flags, shell.in);
  if (!question) return report(question.error());
  Result<Talk> talk = Talk::open(shell.files, flags.talk, shell.places, shell.log);
  if (!talk) return report(talk.error());
  const InterruptGuard guard;
  WrappedOutput terminal(STDOUT_FILENO, std::getenv("TERM"));
  const auto print_reply = [&](std::string_view text) {
    return write_output(terminal.wraps() && !flags.json ? terminal.bytes_for(escape_controls(text)) : text);
  };
  const Status answered = answer_once(*talk, flags, *question, print_reply, shell.log, &guard.flag());
  const Status traced = talk->finish_trace();
  return finish(answered ? traced : answered);
}

}  // namespace

Result<Question> question_of(FileSystem& files, const RunFlags& flags, std::istream& in) {
  const int given = int{flags.prompt.has_value()} + int{!flags.file.empty()} + int{!flags.messages.empty()};
  if (given > 1)
    return Error{ErrorCode::invalid_argument,
                 "expected one of -p, -f and --messages, found more; give one of them"};
  if (flags.raw && (!flags.messages.empty() || !flags.system.empty()))
    return Error{ErrorCode::invalid_argument,
                 "--raw continues a text; it cannot be combined with --messages or -sys"};
  Question question;
  if (!flags.messages.empty()) {
    if (!flags.system.empty())
      return Error{ErrorCode::invalid_argument,
                   "-sys cannot be combined with --messages; put the system message into the messages"};
    MF_TRY(const NamedText read,
           read_file_or_input(files, "--messages", flags.messages, in, kMaxPromptBytes));
    MF_TRY(const Conversation conversation, Conversation::parse(read.text, read.name));
    question.messages = conversation.messages();
    return question;
  }
  MF_TRY(question.text, read_prompt(files, flags, in));
  if (question.text.empty())
    return Error{ErrorCode::invalid_argument,
                 "no question; give -p TEXT, -f FILE or a text on standard input"};
  if (flags.raw) return question;
  Conversation conversation;
  conversation.set_system(flags.system);
  conversation.say(question.text);
  question.messages = conversation.messages();
  return question;
}

Status answer_once(Talk& talk, const RunFlags& flags, const Question& question,
                   FunctionRef<Status(std::string_view)> out, LogSink& log, const std::atomic<bool>* cancel) {
  if (!flags.quiet) log.write(LogLevel::info, "memory: " + memory_line(talk.engine().memory_plan()));
  show_streaming(talk.engine(), flags.quiet, log);
  const ReplyReading reading = flags.json             ? ReplyReading::all
                               : flags.hide_reasoning ? ReplyReading::reasoning
                                                      : ReplyReading::nothing;
  ReplyWriter writer(out);
  AnswerCollector collector;
  GenerationListener& listener = flags.json ? static_cast<GenerationListener&>(collector) : writer;
  Result<GenerationResult> result = flags.raw ? talk.continue_text(question.text, listener, cancel)
                                              : talk.answer(question.messages, listener, cancel, reading);
  MF_TRY_STATUS(writer.status());
  if (!result) {
    if (writer.has_written()) MF_TRY_STATUS(out("\n"));
    return std::move(result).error();
  }
  MF_TRY_STATUS(out(flags.json ? json_reply(*result, collector) : "\n"));
  if (!flags.quiet) log.write(LogLevel::info, statistics_line(*result, talk.engine().streaming()));
  if (result->reason == FinishReason::cancelled) return Error{ErrorCode::cancelled, "stopped"};
  return {};
}

Command add_run(CLI::App& program) {
  CLI::App* const parser =
      program.add_subcommand("run", "Ask a model once: the reply goes to standard output");
  const auto flags = std::make_shared<RunFlags>();
  const auto add = [&](const char* names, auto& value, const char* help) {
    parser->add_option(names, value, help)->group(kWhat);
  };
  add("-p,--prompt", flags->prompt, "The question");
  add("-f,--file", flags->file, "A file with the question; -, or no question flag: standard input");
  add("--system-prompt", flags->system, "-sys TEXT: the system message");
  add("--messages", flags->messages, "A JSON file of a whole conversation; -: standard input");
  parser->add_flag("--raw", flags->raw, "No chat template: the model continues the text")->group(kWhat);
  add_talk_flags(*parser, flags->talk);
  const auto add_switch = [&](const char* names, bool& value, const char* help) {
    parser->add_flag(names, value, help)->group(kReply);
  };
  add_switch("--hide-reasoning", flags->hide_reasoning, "Print only what follows the reasoning");
  add_switch("--json", flags->json, "Print one JSON object: text, ids, finish reason, statistics");
  add_switch("-q,--quiet", flags->quiet, "No memory plan and no statistics on standard error");
  take_environment(*parser);
  return {parser, [flags](const Shell& shell) { return run(shell, *flags); }};
}

}  // namespace moeflux::cli
