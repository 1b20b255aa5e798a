// The program: parses arguments, calls the library, prints. Text for people goes to standard output,
// everything that is not the answer to standard error.

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <new>
#include <string>
#include <thread>

#include "base/log.h"
#include "base/printable.h"
#include "cli/arguments.h"
#include "cli/chat_terminal.h"
#include "cli/doctor_page.h"
#include "cli/evaluating.h"
#include "cli/exit_code.h"
#include "cli/inspect.h"
#include "cli/packing.h"
#include "cli/statistics_line.h"
#include "cli/terminal/interrupt.h"
#include "io/posix_file_system.h"
#include "measure/doctor.h"
#include "pack/synthetic_shapes.h"

namespace moeflux::cli {
namespace {

void complain(std::string_view message) { fmt::print(stderr, "moeflux: {}\n", message); }

// What the library has to say besides its results: warnings as complaints, the rest as it is.
class TerminalLog final : public LogSink {
 public:
  void write(LogLevel level, std::string_view message) override {
    if (level >= LogLevel::warning)
      complain(fmt::format("{}: {}", name_of(level), printable(message, std::string::npos)));
    else if (level == LogLevel::info)
      fmt::print(stderr, "{}\n", printable(message, std::string::npos));
  }
};

// One line whatever a path or a name in it holds.
ExitCode report(const Error& error) {
  complain(printable(error.message(), std::string::npos));
  return exit_code_of(error);
}

// A full disk or a closed pipe behind standard output is a failure, not a silent success.
Status print_piece(std::string_view text) {
  const bool is_written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (is_written && std::fflush(stdout) == 0) return {};
  return Error{ErrorCode::io_failed, "cannot write to standard output"};
}

// Who pressed Ctrl-C knows that it was stopped.
ExitCode finish(const Status& status) {
  if (status) return ExitCode::ok;
  return status.error().code() == ErrorCode::cancelled ? ExitCode::interrupted : report(status.error());
}

ExitCode print(const std::string& text) { return finish(print_piece(text)); }

ExitCode finish(const Result<std::string>& text) { return text ? print(*text) : report(text.error()); }

// The numbers are printed whether they are good or not.
ExitCode finish(const Result<Verdict>& verdict) {
  if (!verdict) return report(verdict.error());
  const ExitCode printed = print(verdict->text);
  if (printed != ExitCode::ok || verdict->failure.empty()) return printed;
  complain(verdict->failure);
  return ExitCode::failure;
}

ExitCode run_help(CLI::App& app, const std::string& command) {
  // App::help() would explain the command that was given, which is `help` itself.
  if (command.empty())
    return print(app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal));
  for (const CLI::App* known : app.get_subcommands({}))
    if (known->get_name() == command) return print(known->help("moeflux"));
  complain(fmt::format("there is no command '{}'; 'moeflux help' lists them", command));
  return ExitCode::usage;
}

// A usage error says what was wrong and where help is; CLI11's own exit codes (105, 109, ...) mean nothing
// to scripts.
ExitCode usage_error(const CLI::ParseError& error) {
  std::string what = error.what();
  if (const std::size_t newline = what.find('\n'); newline != std::string::npos) what.resize(newline);
  complain(what + " (see 'moeflux help')");
  return ExitCode::usage;
}

void add_jobs(CLI::App& command, unsigned& jobs) {
  jobs = std::max(1u, std::thread::hardware_concurrency());
  command.add_option("--jobs", jobs, "How many threads (default: one a processor)")
      ->check(CLI::Range(1u, 256u));
}

CLI::App* add_eval(CLI::App& app, EvalCommand& eval) {
  CLI::App* command =
      app.add_subcommand("eval", "Compare a packed model with another implementation's outputs");
  command->add_option("MODEL", eval.model, "A packed model")->required();
  command->add_option("GOLDEN", eval.golden, "A safetensors file with input_ids, logits and more")
      ->required();
  command->add_flag("--json", eval.json, "Print the same numbers as JSON, on one line");
  command->add_option("--precision", eval.precision, "exact or fast (default: exact)");
  command->add_option("--kv", eval.kv, "How keys and values are kept: f32, bf16 or int8 (default: f32)");
  command->add_option("--chunk", eval.chunk, "Positions of the prompt in a step (default: all)")
      ->check(CLI::Range(1u, 1u << 20));
  command->add_option("--threads", eval.threads, "How many threads (default: one a physical core)")
      ->check(CLI::Range(1u, 1024u));
  command->add_option("--isa", eval.isa,
                      "Which kernels, as 'moeflux doctor' lists them (default: the fastest)");
  command->add_option("--batch", eval.batch, "Sessions in a step: others beside the golden's (default 1)")
      ->check(CLI::Range(1u, 256u));
  command->add_flag("--layers", eval.layers, "Also compare layer by layer");
  command->add_option("--max-error", eval.max_error, "Exit with 1 when a logit is farther off than this");
  command
      ->add_option("--top-experts", eval.top_experts,
                   "Fewer experts a token than the model's own: another, cheaper model")
      ->check(CLI::Range(1u, 65536u));
  add_streaming(*command, eval.streaming);
  return command;
}

Places places() {
  std::error_code ignored;
  return find_places([](const char* name) -> const char* { return std::getenv(name); },
                     std::filesystem::read_symlink("/proc/self/exe", ignored));
}

// Where lines of a chat are remembered; empty: nowhere.
std::filesystem::path history_file() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state != '\0')
    return std::filesystem::path(state) / "moeflux" / "chat_history";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return std::filesystem::path(home) / ".local" / "state" / "moeflux" / "chat_history";
  return {};
}

ExitCode chat_with(FileSystem& files, const ChatCommand& command, LogSink& log) {
  Result<Talk> talk = Talk::open(files, command.talk, places(), log);
  if (!talk) return report(talk.error());
  if (talk->text().template_error()) return report(*talk->text().template_error());
  if (talk->text().chat_templates() == nullptr) {
    complain(fmt::format("{} has no chat template; give one with --chat-template, or use 'moeflux run --raw'",
                         printable(talk->model().name)));
    return ExitCode::bad_model;
  }
  show_streaming(talk->engine(), true, log);
  StandardTerminal terminal(history_file());
  Chat chat(files, *std::move(talk), terminal, command.quiet);
  chat.set_system(command.system);
  chat.show_banner();
  const Status talked = chat.run();
  const Status traced = chat.talk().finish_trace();
  return finish(talked ? traced : talked);
}

// Ctrl-C is taken over when everything is there: until then it ends the program as usual.
ExitCode run_once(FileSystem& files, const RunCommand& command, LogSink& log) {
  const bool reads_input = (!command.prompt && command.file.empty() && command.messages.empty()) ||
                           command.file == "-" || command.messages == "-";
  if (reads_input && ::isatty(STDIN_FILENO) == 1)
    log.write(LogLevel::info, "reading from the terminal; Ctrl-D ends it");
  const Result<Question> question = question_of(files, command, std::cin);
  if (!question) return report(question.error());
  Result<Talk> talk = Talk::open(files, command.talk, places(), log);
  if (!talk) return report(talk.error());
  const InterruptGuard guard;
  const Status run = run_run(*talk, command, *question, print_piece, log, &guard.flag());
  const Status traced = talk->finish_trace();
  return finish(run ? traced : run);
}

ExitCode run(int argc, char** argv) {
  CLI::App app("moeflux runs Mixture-of-Experts language models that are larger than memory.", "moeflux");
  app.set_version_flag("--version", "moeflux " MOEFLUX_VERSION, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(0, 1);
  app.footer(
      "Exit codes: 0 ok, 1 failure, 2 usage, 3 model not found or invalid, 4 not enough memory or disk,\n"
      "5 I/O error, 130 interrupted.");

  RunCommand talk_once;
  const CLI::App* run_command = add_run(app, talk_once);
  ChatCommand chat;
  const CLI::App* chat_command = add_chat(app, chat);

  InspectOptions inspect_options;
  CLI::App* inspect_command =
      app.add_subcommand("inspect", "Say what a model on disk is, without loading it");
  inspect_command
      ->add_option("PATH", inspect_options.path,
                   "A checkpoint, the original's artifacts, a packed model, or a shape")
      ->required();
  inspect_command->add_flag("--json", inspect_options.json, "Print the same numbers as JSON");
  inspect_command->add_flag("--check", inspect_options.check,
                            "Also read and decode every weight; stop at the first bad one");

  PackCommand pack;
  CLI::App* pack_command = app.add_subcommand("pack", "Turn a checkpoint into a packed model");
  pack_command->add_option("SRC", pack.source, "A checkpoint, as 'inspect' takes it")->required();
  pack_command
      ->add_option("DST", pack.destination, "The directory to write; an interrupted pack is continued")
      ->required();
  pack_command->add_option("--bits", pack.bits,
                           "BF16 and FP8 sources: 4, 8, or 16 to keep BF16 (default: 4 for BF16,\n"
                           "FP8 as it is)");
  add_jobs(*pack_command, pack.jobs);

  VerifyCommand verify;
  CLI::App* verify_command = app.add_subcommand("verify", "Read a packed model and compare every checksum");
  verify_command->add_option("PATH", verify.path, "A packed model")->required();
  add_jobs(*verify_command, verify.jobs);

  SynthCommand synth;
  CLI::App* synth_command = app.add_subcommand("synth", "Write a model of a true shape with random weights");
  synth_command
      ->add_option("SHAPE", synth.shape,
                   fmt::format("{}, or a config.json", fmt::join(builtin_shapes(), ", ")))
      ->required();
  synth_command->add_option("DST", synth.destination, "The directory to write")->required();
  synth_command->add_option("--layers", synth.layers, "Other than the shape's number of layers");
  synth_command->add_option("--experts", synth.experts, "Other than the shape's number of experts a layer");
  synth_command->add_option("--seed", synth.seed, "Other weights (default 0)");
  synth_command->add_option("--source", synth.source, "mlx, bf16 or fp8: source files, not a packed model");
  add_jobs(*synth_command, synth.jobs);

  EvalCommand eval;
  const CLI::App* eval_command = add_eval(app, eval);

  PerplexityCommand perplexity;
  const CLI::App* perplexity_command = add_perplexity(app, perplexity);
  BenchCommand bench;
  const CLI::App* bench_command = add_bench(app, bench);
  TokenizeCommand tokenize;
  const CLI::App* tokenize_command = add_tokenize(app, tokenize);
  DetokenizeCommand detokenize;
  const CLI::App* detokenize_command = add_detokenize(app, detokenize);
  TemplateCommand render;
  const CLI::App* template_command = add_template(app, render);

  bool doctor_json = false;
  CLI::App* doctor_command =
      app.add_subcommand("doctor", "Say what this machine is and what moeflux makes of it");
  doctor_command->add_flag("--json", doctor_json, "Print the same numbers as JSON");

  std::string help_command;
  CLI::App* help = app.add_subcommand("help", "Print help, of one command if it is named");
  help->add_option("COMMAND", help_command, "The command to explain");

  try {
    Result<std::vector<std::string>> arguments = with_long_names(argc, argv);
    if (!arguments) {
      complain(arguments.error().message() + " (see 'moeflux help')");
      return ExitCode::usage;
    }
    std::ranges::reverse(*arguments);  // as CLI11 takes them
    app.parse(*std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    if (app.get_subcommands().empty()) return print(app.help());
    return print(app.get_subcommands().front()->help("moeflux"));
  } catch (const CLI::CallForVersion&) {
    return print("moeflux " MOEFLUX_VERSION "\n");
  } catch (const CLI::ParseError& error) {
    return usage_error(error);
  }

  PosixFileSystem files;
  TerminalLog log;
  if (run_command->parsed()) return run_once(files, talk_once, log);
  if (chat_command->parsed()) return chat_with(files, chat, log);
  if (perplexity_command->parsed()) return finish(run_perplexity(files, perplexity, places(), log));
  if (bench_command->parsed()) return finish(run_bench_command(files, bench, places(), log));
  if (tokenize_command->parsed()) return finish(run_tokenize(files, tokenize, std::cin, print_piece));
  if (detokenize_command->parsed()) return finish(run_detokenize(files, detokenize, std::cin, print_piece));
  if (template_command->parsed()) return finish(run_template(files, render, std::cin, print_piece));
  if (inspect_command->parsed()) return finish(inspect(files, inspect_options));
  if (pack_command->parsed()) return finish(run_pack(files, pack));
  if (verify_command->parsed()) return finish(run_verify(files, verify));
  if (synth_command->parsed()) return finish(run_synth(files, synth));
  if (eval_command->parsed()) return finish(run_eval(files, eval, log));
  if (doctor_command->parsed()) {
    const Diagnosis diagnosis = diagnose(files, folder_of_models(files, places()));
    return print(doctor_json ? render_json(diagnosis) : render_page(diagnosis));
  }
  if (help->parsed()) return run_help(app, help_command);
  complain("expected a command\n\n" + app.help());
  return ExitCode::usage;
}

}  // namespace
}  // namespace moeflux::cli

int main(int argc, char** argv) {
  // Fixed, because left alone glibc moves this threshold up with every large buffer that is freed, and the
  // next ones then stay behind as holes of the heap: opening the largest checkpoints took 108 MB, not 77.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  std::signal(SIGPIPE, SIG_IGN);  // writing to a pipe that nobody reads is an error like others
  try {
    return static_cast<int>(moeflux::cli::run(argc, argv));
  } catch (const std::bad_alloc&) {
    std::fputs("moeflux: not enough memory\n", stderr);
    return static_cast<int>(moeflux::cli::ExitCode::no_room);
  }
}
