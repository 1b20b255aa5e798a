#include "cli/running.h"

#include <fmt/format.h>

#include "base/sizes.h"
#include "cli/answer.h"
#include "cli/conversation.h"
#include "cli/input.h"
#include "cli/statistics_line.h"

namespace moeflux::cli {
namespace {

constexpr std::uint64_t kMaxPromptBytes = 64 * kMiB;

// Hands the text of a reply on at once. After an output that failed it says nothing more and asks for the end.
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

Result<std::string> read_prompt(FileSystem& files, const RunCommand& command, std::istream& in) {
  if (command.prompt) return *command.prompt;
  MF_TRY(NamedText read,
         read_file_or_input(files, command.file.empty() ? "-" : command.file, in, kMaxPromptBytes));
  if (read.text.ends_with('\n')) read.text.pop_back();  // an editor's, not the user's
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

}  // namespace

Result<Question> question_of(FileSystem& files, const RunCommand& command, std::istream& in) {
  const int given =
      int{command.prompt.has_value()} + int{!command.file.empty()} + int{!command.messages.empty()};
  if (given > 1)
    return Error{ErrorCode::invalid_argument, "-p, -f and --messages each say what to ask; give one of them"};
  if (command.raw && (!command.messages.empty() || !command.system.empty()))
    return Error{ErrorCode::invalid_argument,
                 "--raw goes on with a text: --messages and -sys have no place in it"};
  Question question;
  if (!command.messages.empty()) {
    if (!command.system.empty())
      return Error{ErrorCode::invalid_argument,
                   "-sys and --messages exclude each other: put it into the messages"};
    MF_TRY(const NamedText read, read_file_or_input(files, command.messages, in, kMaxPromptBytes));
    MF_TRY(const Conversation conversation, Conversation::parse(read.text, read.name));
    question.messages = conversation.messages();
    return question;
  }
  MF_TRY(question.text, read_prompt(files, command, in));
  if (question.text.empty())
    return Error{ErrorCode::invalid_argument,
                 "there is nothing to ask: give -p TEXT, -f FILE or a text on standard input"};
  if (command.raw) return question;
  Conversation conversation;
  conversation.set_system(command.system);
  conversation.say(question.text);
  question.messages = conversation.messages();
  return question;
}

Status run_run(Talk& talk, const RunCommand& command, const Question& question,
               FunctionRef<Status(std::string_view)> out, LogSink& log, const std::atomic<bool>* cancel) {
  if (!command.quiet) log.write(LogLevel::info, "memory: " + memory_line(talk.engine().memory_plan()));
  show_streaming(talk.engine(), command.quiet, log);
  const ReplyReading reading = command.json             ? ReplyReading::all
                               : command.hide_reasoning ? ReplyReading::reasoning
                                                        : ReplyReading::nothing;
  ReplyWriter writer(out);
  AnswerCollector collector;
  GenerationListener& listener = command.json ? static_cast<GenerationListener&>(collector) : writer;
  Result<GenerationResult> result = command.raw ? talk.go_on(question.text, listener, cancel)
                                                : talk.answer(question.messages, listener, cancel, reading);
  MF_TRY_STATUS(writer.status());
  if (!result) {
    if (writer.has_written()) MF_TRY_STATUS(out("\n"));
    return std::move(result).error();
  }
  MF_TRY_STATUS(out(command.json ? json_reply(*result, collector) : "\n"));
  if (!command.quiet) log.write(LogLevel::info, statistics_line(*result, talk.engine().streaming()));
  if (result->reason == FinishReason::cancelled) return Error{ErrorCode::cancelled, "stopped"};
  return {};
}

}  // namespace moeflux::cli
