#include "cli/commands/chat.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/printable.h"
#include "base/sizes.h"
#include "cli/answer.h"
#include "cli/chat_terminal.h"
#include "cli/console.h"
#include "cli/escape_controls.h"
#include "cli/flags/flag_groups.h"
#include "cli/flags/shared_flags.h"
#include "cli/saved_how.h"
#include "cli/statistics_line.h"
#include "io/atomic_file.h"

namespace moeflux::cli {
namespace {

constexpr std::uint64_t kMaxConversationBytes = 64 * kMiB;
constexpr std::string_view kComputedAgain = "its state will be computed again";

struct CommandHelp {
  std::string_view name, argument, meaning;
};
constexpr std::array<CommandHelp, 11> kCommands{{
    {"/help", "", "this list"},
    {"/clear", "", "forget the conversation, keep the system message"},
    {"/undo", "", "forget the last question and its answer"},
    {"/regen", "", "answer the last question again"},
    {"/system", "[TEXT]", "tell the model how to behave; without a text: show it"},
    {"/tool", "TEXT", "answer a tool call with its result"},
    {"/save", "FILE", "write the conversation, and the model's state beside it (FILE.state)"},
    {"/load", "FILE", "read them again"},
    {"/stats", "", "positions, memory, speed"},
    {"/quit", "", "leave; so do Ctrl-D and Ctrl-C twice"},
    {"/exit", "", "the same"},
}};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\n'))
    text.remove_suffix(1);
  return text;
}

// Whether a text is one line of "/word", perhaps with an argument. "/etc/passwd is a file" is not, nor is a
// text of several lines.
bool is_command(std::string_view text) {
  if (text.empty() || text.front() != '/' || text.find('\n') != std::string_view::npos) return false;
  const std::string_view word = text.substr(1, text.find_first_of(" \t") - 1);
  return !word.empty() &&
         std::ranges::all_of(word, [](char c) { return (c >= 'a' && c <= 'z') || c == '?'; });
}

// Expands "~/" as a shell does.
std::string with_home(std::string_view path) {
  const char* const home = path.starts_with("~/") ? std::getenv("HOME") : nullptr;
  return home == nullptr ? std::string(path) : std::string(home) + std::string(path.substr(1));
}

// Shows an answer while it collects it.
class AnswerScreen final : public AnswerCollector {
 public:
  AnswerScreen(ChatTerminal& terminal, std::uint32_t step_rows)
      : terminal_(terminal), step_rows_(step_rows) {}

  void read_prompt(std::uint32_t done, std::uint32_t total) override {
    if (first_done_ == kNone) first_done_ = done;
    if (total - first_done_ <= step_rows_) return;  // too short for a progress line
    terminal_.progress(done < total ? fmt::format("reading the prompt: {} of {} tokens", with_thousands(done),
                                                  with_thousands(total))
                                    : std::string());
  }

  void said(const ReplyEvent& event) override {
    AnswerCollector::said(event);
    if (const auto* text = std::get_if<ReplyText>(&event)) {
      show(text->text, ChatTerminal::Style::text);
    } else if (const auto* reasoning = std::get_if<ReplyReasoning>(&event)) {
      show(reasoning->text, ChatTerminal::Style::reasoning);
    } else if (const auto* call = std::get_if<ToolCallFinished>(&event)) {
      end_line();
      write(fmt::format("→ {} {}\n", escape_controls(call->name), escape_controls(call->arguments_json)));
    }
  }

  void end_line() {
    if (!at_line_start_) write("\n");
  }
  bool wants_more() const override { return status_.has_value(); }
  Status status() const { return status_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  void show(std::string_view text, ChatTerminal::Style style) {
    if (style != std::exchange(style_, style)) end_line();
    write(escape_controls(text), style);
  }
  void write(std::string_view text, ChatTerminal::Style style = ChatTerminal::Style::text) {
    if (text.empty() || !status_) return;
    at_line_start_ = text.back() == '\n';
    status_ = terminal_.write(text, style);
  }

  ChatTerminal& terminal_;
  std::uint32_t step_rows_;
  std::uint32_t first_done_ = kNone;
  ChatTerminal::Style style_ = ChatTerminal::Style::text;
  bool at_line_start_ = true;
  Status status_;
};

// The file of previous lines, or an empty path if the environment has no place for it.
std::filesystem::path history_file() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state != '\0')
    return std::filesystem::path(state) / "moeflux" / "chat_history";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::filesystem::path(home) / ".local" / "state" / "moeflux" / "chat_history";
  return {};
}

ExitCode chat(const Shell& shell, const ChatFlags& flags) {
  Result<Talk> talk = Talk::open(shell.files, flags.talk, shell.places, shell.log);
  if (!talk) return report(talk.error());
  if (talk->text().template_error()) return report(*talk->text().template_error());
  if (talk->text().chat_templates() == nullptr) {
    complain(fmt::format("{} has no chat template; give one with --chat-template, or use 'moeflux run --raw'",
                         printable(talk->model().name)));
    return ExitCode::bad_model;
  }
  show_streaming(talk->engine(), true, shell.log);
  StandardTerminal terminal(history_file());
  Chat chat(shell.files, *std::move(talk), terminal, flags.quiet);
  chat.set_system(flags.system);
  chat.show_banner();
  const Status talked = chat.run();
  const Status traced = chat.talk().finish_trace();
  return finish(talked ? traced : talked);
}

}  // namespace

Chat::Chat(FileSystem& files, Talk talk, ChatTerminal& terminal, bool quiet)
    : files_(files), talk_(std::move(talk)), terminal_(terminal), quiet_(quiet) {}

std::vector<std::string> Chat::commands() {
  std::vector<std::string> names;
  for (const CommandHelp& help : kCommands) names.emplace_back(help.name);
  return names;
}

void Chat::show_banner() {
  if (!quiet_) terminal_.note(banner(talk_));
}

void Chat::note_failure(const Error& error) {
  terminal_.note("moeflux: " + printable(error.message(), std::string::npos));
}

Status Chat::run() {
  while (true) {
    MF_TRY(const Line line, terminal_.read_line());
    if (line.kind == Line::Kind::end_of_input) return {};
    if (line.kind == Line::Kind::interrupted) {
      if (was_interrupted_) return {};
      was_interrupted_ = true;
      terminal_.note("Ctrl-C again leaves, and so does /quit");
      continue;
    }
    was_interrupted_ = false;
    if (!quiet_ && !terminal_.shows_input()) echo(line.text);
    MF_TRY(const Next next, take(line.text));
    if (next == Next::leave) return {};
  }
}

// Shows input from a pipe, so that notes and answers read as a conversation.
void Chat::echo(std::string_view line) {
  std::string shown = "> ";
  for (const char c : escape_controls(line)) {
    shown += c;
    if (c == '\n') shown += "... ";
  }
  terminal_.note(shown);
}

// Handles one line of input: a command or a message.
Result<Chat::Next> Chat::take(const std::string& line) {
  const std::string_view text = trimmed(line);
  if (text.empty()) return Next::go_on;
  if (is_command(text)) {
    const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
    return obey(text.substr(0, end), trimmed(text.substr(end)));
  }
  if (conversation_.ends_with_a_question() && conversation_.undo())
    terminal_.note("the question before it has no answer and is forgotten");
  conversation_.say(line);
  talk_.set_attempt(0);
  return answer();
}

Result<Chat::Next> Chat::obey(std::string_view command, std::string_view argument) {
  const auto needs_argument = [&](std::string_view what) {
    if (!argument.empty()) return false;
    terminal_.note(fmt::format("{} takes {}", command, what));
    return true;
  };
  if (command == "/quit" || command == "/exit" || command == "/bye") return Next::leave;
  if (command == "/help" || command == "/?") {
    show_help();
  } else if (command == "/clear") {
    conversation_.clear();
    talk_.session().clear();
    terminal_.note("the conversation is forgotten");
  } else if (command == "/undo") {
    terminal_.note(conversation_.undo() ? "the last question and its answer are forgotten"
                                        : "there is nothing to undo");
  } else if (command == "/regen") {
    Conversation before = conversation_;
    if (conversation_.take_back_answer()) {
      talk_.set_attempt(talk_.attempt() + 1);
      Result<Next> next = answer();
      if (conversation_.awaits_answer()) conversation_ = std::move(before);  // there is no new answer
      return next;
    }
    terminal_.note("there is nothing to answer");
  } else if (command == "/system") {
    if (!argument.empty()) conversation_.set_system(argument);
    const std::string system = conversation_.system();
    terminal_.note(system.empty() ? "there is no system message" : "system: " + escape_controls(system));
  } else if (command == "/tool") {
    if (needs_argument("the result of the tool")) return Next::go_on;
    conversation_.answer({{"role", "tool"}, {"content", argument}});
    return answer();
  } else if (command == "/save") {
    if (needs_argument("a file's name")) return Next::go_on;
    if (const Status saved = save(with_home(argument)); !saved) note_failure(saved.error());
  } else if (command == "/load") {
    if (needs_argument("a file's name")) return Next::go_on;
    const Result<Next> loaded = load(with_home(argument));
    if (loaded) return *loaded;
    note_failure(loaded.error());
  } else if (command == "/stats") {
    show_statistics();
  } else {
    terminal_.note(fmt::format("there is no command {}; /help lists them", escape_controls(command)));
  }
  return Next::go_on;
}

Result<Chat::Next> Chat::answer() {
  AnswerScreen screen(terminal_, talk_.engine().options().step_rows);
  std::optional<Result<GenerationResult>> result;
  const int interrupts = terminal_.while_interruptible([&](const std::atomic<bool>& cancel) {
    result.emplace(talk_.answer(conversation_.messages(), screen, &cancel));
  });
  was_interrupted_ = interrupts > 0;
  terminal_.progress("");
  screen.end_line();
  MF_TRY_STATUS(screen.status());
  if (!*result) {  // the question stays: /regen repeats it, /undo removes it
    note_failure(result->error());
    return interrupts > 1 ? Next::leave : Next::go_on;
  }
  last_ = **result;
  const bool has_said_something =
      !screen.text().empty() || !screen.reasoning().empty() || !screen.tool_calls().empty();
  if (has_said_something || last_->reason != FinishReason::cancelled) conversation_.answer(screen.message());
  if (!quiet_) terminal_.note(statistics_line(*last_, talk_.engine().streaming()));
  return interrupts > 1 ? Next::leave : Next::go_on;
}

void Chat::show_help() {
  std::string page;
  for (const CommandHelp& help : kCommands)
    page += fmt::format("{}{:<15} {}", page.empty() ? "" : "\n",
                        fmt::format("{} {}", help.name, help.argument), help.meaning);
  page += "\nA text of several lines: paste it, end a line with \\, or put it between two lines of \"\"\".";
  terminal_.note(page);
}

void Chat::show_statistics() {
  const Session& session = talk_.session();
  std::string page = fmt::format("positions {} of {}, {} checkpoint{}\n", with_thousands(session.position()),
                                 with_thousands(session.context()), session.checkpoint_count(),
                                 session.checkpoint_count() == 1 ? "" : "s");
  page += fmt::format("state     {} in use\n", human_bytes(talk_.engine().state_pool().used_bytes()));
  page += "memory    " + memory_line(talk_.engine().memory_plan());
  page += "\nexperts   " + streaming_line(talk_.engine().streaming());
  if (last_) page += "\nlast      " + statistics_line(*last_, talk_.engine().streaming());
  terminal_.note(page);
}

Status Chat::save(const std::string& path) {
  if (conversation_.is_empty()) return Error{ErrorCode::invalid_argument, "there is nothing to save yet"};
  MF_TRY(const auto file, AtomicFile::begin(files_, path));
  const std::string json = conversation_.to_json();
  MF_TRY_STATUS(file->append(std::as_bytes(std::span(json))));
  MF_TRY_STATUS(file->commit());
  MF_TRY_STATUS(talk_.session().save(files_, path + ".state"));
  terminal_.note(fmt::format("saved {} message{} to {}", conversation_.messages().size(),
                             conversation_.messages().size() == 1 ? "" : "s", printable(path)));
  return {};
}

Result<Chat::Next> Chat::load(const std::string& path) {
  MF_TRY(const std::string json, files_.read_text(path, kMaxConversationBytes));
  MF_TRY(Conversation conversation, Conversation::parse(json, path));
  MF_TRY(const bool has_state, files_.exists(path + ".state"));
  conversation_ = std::move(conversation);
  int interrupts = 0;
  const std::string state = has_state ? load_state(path + ".state", interrupts) : std::string(kComputedAgain);
  was_interrupted_ = interrupts > 0;
  terminal_.note(fmt::format("loaded {} message{} from {}; {}", conversation_.messages().size(),
                             conversation_.messages().size() == 1 ? "" : "s", printable(path), state));
  return interrupts > 1 ? Next::leave : Next::go_on;
}

std::string Chat::load_state(const std::string& path, int& interrupts) {
  talk_.session().clear();  // makes room: the state of the conversation before is of no use any more
  const Status loaded = talk_.session().load(files_, path);
  if (loaded) return "its state is there";
  Error why = loaded.error();
  if (why.code() == ErrorCode::wrong_numerics) {
    const Result<SnapshotTokens> saved = talk_.session().read_tokens(files_, path);
    if (saved) return replay(*saved, interrupts);
    if (saved.error().code() != ErrorCode::tokens_unknown) why = saved.error();
  }
  return fmt::format("{}: {}", printable(why.message(), std::string::npos), kComputedAgain);
}

std::string Chat::replay(const SnapshotTokens& saved, int& interrupts) {
  Session& session = talk_.session();
  const std::string count = with_thousands(saved.tokens.size());
  terminal_.note(fmt::format("{}: reading {} token{} again",
                             saved_how(saved.identity, talk_.engine().snapshot_identity()), count,
                             saved.tokens.size() == 1 ? "" : "s"));
  std::optional<Result<StepStatistics>> run;
  interrupts = terminal_.while_interruptible([&](const std::atomic<bool>& cancel) {
    run.emplace(session.replay(saved, {.cancel = &cancel}, [&](const StepStatistics&) -> Status {
      terminal_.progress(fmt::format("reading: {} of {} tokens", with_thousands(session.position()), count));
      return {};
    }));
  });
  terminal_.progress("");
  if (*run) return "its state is there again";
  const Error& why = run->error();
  if (why.code() == ErrorCode::cancelled)
    return fmt::format("stopped after {} of {} tokens; the next answer reads the others",
                       with_thousands(session.position()), count);
  return fmt::format("{}: {}", printable(why.message(), std::string::npos), kComputedAgain);
}

Command add_chat(CLI::App& program) {
  CLI::App* const parser =
      program.add_subcommand("chat", "Talk with a model; without -m: with the bundled demo");
  const auto flags = std::make_shared<ChatFlags>();
  add_talk_flags(*parser, flags->talk);
  parser->add_option("--system-prompt", flags->system, "-sys TEXT: the system message")->group(kWhat);
  parser->add_flag("-q,--quiet", flags->quiet, "No banner and no statistics lines")->group(kReply);
  take_environment(*parser);
  return {parser, [flags](const Shell& shell) { return chat(shell, *flags); }};
}

}  // namespace moeflux::cli
