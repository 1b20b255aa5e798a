#include "cli/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/printable.h"

namespace moeflux::cli {
namespace {

constexpr const char* kWhat = "What to run";
constexpr const char* kHow = "How to run it";
constexpr const char* kSampling =
    "How tokens are chosen (default: as the model's generation_config.json says)";
constexpr const char* kReply = "The reply";
constexpr const char* kStreaming = "Streaming experts from disk";

void add_model(CLI::App& command, ModelChoice& model) {
  command
      .add_option("-m,--model", model.model, "A packed model, or a checkpoint (packed into the cache, once)")
      ->group(kWhat);
  command
      .add_option("--hf-repo", model.hf_repo, "-hf ORG/NAME: a checkpoint in the local Hugging Face cache")
      ->group(kWhat);
}

void add_engine(CLI::App& command, EngineFlags& engine) {
  command.add_option("-t,--threads", engine.threads, "How many threads (default: one a physical core)")
      ->check(CLI::Range(1u, 1024u))
      ->group(kHow);
  command
      .add_option("-b,--batch-size", engine.step_rows,
                  "Tokens of a prompt that are run together (default 512)")
      ->check(CLI::Range(1u, 1u << 20))
      ->group(kHow);
  command.add_option("--precision", engine.precision, "exact or fast (default: fast)")->group(kHow);
  command.add_option("--kv", engine.kv, "How keys and values are kept: f32, bf16 or int8 (default: f32)")
      ->group(kHow);
  command
      .add_option("--isa", engine.isa, "Which kernels, as 'moeflux doctor' lists them (default: the fastest)")
      ->group(kHow);
  command
      .add_option("--top-experts", engine.top_experts,
                  "Fewer experts a token than the model's own: another, cheaper model")
      ->check(CLI::Range(1u, 65536u))
      ->group(kHow);
}

void add_context(CLI::App& command, EngineFlags& engine) {
  command
      .add_option(
          "-c,--ctx-size", engine.context,
          "Positions that prompt and reply may take (default: 8192, or the model's own if that is less)")
      ->check(CLI::Range(0u, 1u << 24))
      ->group(kHow);
}

void add_sampling(CLI::App& command, SamplingFlags& sampling) {
  const auto add = [&](const std::string& name, auto& value, const std::string& help) {
    command.add_option(name, value, help)->group(kSampling);
  };
  add("--temp,--temperature", sampling.temperature, "0: always the best token");
  add("--top-k", sampling.top_k, "Only the K best; 0 or less: all");
  add("--top-p", sampling.top_p, "Only the best that together reach this probability");
  add("--min-p", sampling.min_p, "Only those at least this probable, relative to the best");
  add("--repeat-penalty", sampling.repetition_penalty, "Of tokens that were seen; 1: none");
  add("--presence-penalty", sampling.presence_penalty, "Subtracted once from tokens that were generated");
  add("--frequency-penalty", sampling.frequency_penalty,
      "Subtracted for each time that a token was generated");
  add("--repeat-last-n", sampling.repeat_last_n,
      "Tokens that penalties look at (default 64; -1: all, 0: none)");
  add("--logit-bias", sampling.logit_bias, "TOKEN+BIAS or TOKEN-BIAS, as in 15043-inf; may be repeated");
  command.get_option("--logit-bias")->allow_extra_args(false);
  add("-s,--seed", sampling.seed,
      "The same seed gives the same text (default, and -1: another one each time)");
}

void add_reply(CLI::App& command, ReplyFlags& reply) {
  command
      .add_option("-n,--n-predict,--predict,--max-tokens", reply.max_tokens,
                  "Tokens at most (default, and -1: what the context has room for)")
      ->group(kReply);
  command.add_option("--stop", reply.stop, "The reply ends before this text; may be repeated")
      ->allow_extra_args(false)
      ->group(kReply);
  command.add_flag("--json-object", reply.json_object, "The reply is exactly one JSON object")->group(kReply);
  command.add_flag("--ignore-eos", reply.ignores_end, "Go on after the model has ended its reply")
      ->group(kReply);
}

void add_template_flags(CLI::App& command, TalkFlags& talk) {
  command.add_option("--tools", talk.tools, "A JSON file of tools, in OpenAI's form")->group(kWhat);
  command
      .add_option("--chat-template,--chat-template-file", talk.chat_template,
                  "A Jinja file instead of the model's own template")
      ->group(kWhat);
  command
      .add_option("--chat-template-kwargs", talk.template_kwargs,
                  "A JSON object of variables for the template")
      ->group(kWhat);
  command.add_option("--reasoning", talk.reasoning, "on, off, or auto: as the template has it (default)")
      ->group(kWhat);
}

void add_talk(CLI::App& command, TalkFlags& talk) {
  add_model(command, talk.model);
  add_template_flags(command, talk);
  add_engine(command, talk.engine);
  add_context(command, talk.engine);
  add_streaming(command, talk.engine.streaming);
  add_sampling(command, talk.sampling);
  add_reply(command, talk.reply);
}

// MOEFLUX_ARG_TOP_K for --top-k, and so on.
void take_environment(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || option->get_positional() || option->get_lnames()[0] == "help")
      continue;
    std::string name = option->get_lnames()[0];
    std::ranges::transform(name, name.begin(), [](unsigned char c) {
      return c == '-' ? '_' : static_cast<char>(std::toupper(c));
    });
    option->envname("MOEFLUX_ARG_" + name);
    if (option->get_items_expected_max() == 1) option->take_last();  // given twice, the last counts
  }
}

}  // namespace

void add_streaming(CLI::App& command, StreamingFlags& streaming) {
  const auto add = [&](const std::string& name, auto& value, const std::string& help) {
    command.add_option(name, value, help)->group(kStreaming);
  };
  add("--expert-cache", streaming.expert_cache,
      "Memory for experts, as in 2G or 512M (default: what is left; all of them if that is enough)");
  add("--io", streaming.io,
      "uring, pread, buffered, or sim:BANDWIDTH,LATENCY as in sim:3G,100us (default: by what the machine "
      "has)");
  add("--prefetch", streaming.prefetch,
      "previous: while the drive idles, read the last token's experts for the next one, and in prompts the "
      "next layer's; off: read only what is wanted (default: previous)");
  command
      .add_flag("--verify-reads", streaming.verify_reads,
                "Compare every expert that is read with its checksum")
      ->group(kStreaming);
  add("--trace", streaming.trace, "Write what was read, computed and waited for, for ui.perfetto.dev");
}

CLI::App* add_run(CLI::App& app, RunCommand& run) {
  CLI::App* command = app.add_subcommand("run", "Ask a model once: the reply goes to standard output");
  command->add_option("-p,--prompt", run.prompt, "What to ask")->group(kWhat);
  command->add_option("-f,--file", run.file, "A file with what to ask; - or nothing at all: standard input")
      ->group(kWhat);
  command->add_option("--system-prompt", run.system, "-sys TEXT: what the model is told before")
      ->group(kWhat);
  command->add_option("--messages", run.messages, "A JSON file of a whole conversation; -: standard input")
      ->group(kWhat);
  command->add_flag("--raw", run.raw, "No chat template: the model goes on with the text")->group(kWhat);
  add_talk(*command, run.talk);
  command->add_flag("--hide-reasoning", run.hide_reasoning, "Print only what follows the reasoning")
      ->group(kReply);
  command->add_flag("--json", run.json, "Print one JSON object: text, ids, why it ended, statistics")
      ->group(kReply);
  command->add_flag("-q,--quiet", run.quiet, "No memory plan and no statistics on standard error")
      ->group(kReply);
  take_environment(*command);
  return command;
}

CLI::App* add_chat(CLI::App& app, ChatCommand& chat) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a model; without -m: with the bundled demo");
  add_talk(*command, chat.talk);
  command->add_option("--system-prompt", chat.system, "-sys TEXT: what the model is told before")
      ->group(kWhat);
  command->add_flag("-q,--quiet", chat.quiet, "No banner and no statistics lines")->group(kReply);
  take_environment(*command);
  return command;
}

CLI::App* add_tokenize(CLI::App& app, TokenizeCommand& tokenize) {
  CLI::App* command = app.add_subcommand("tokenize", "Text on standard input to token ids");
  command->add_option("DIR", tokenize.directory, "A folder with a tokenizer.json, packed or not")->required();
  command->add_flag("--special", tokenize.special, "Special tokens in the text become their ids");
  command->add_flag("--json", tokenize.json, "One JSON array");
  command->add_flag("--jsonl", tokenize.jsonl,
                    "Each input line is a JSON string, each output line the array of its ids");
  return command;
}

CLI::App* add_detokenize(CLI::App& app, DetokenizeCommand& detokenize) {
  CLI::App* command = app.add_subcommand("detokenize", "Token ids on standard input to text");
  command->add_option("DIR", detokenize.directory, "A folder with a tokenizer.json, packed or not")
      ->required();
  command->add_flag("--skip-special", detokenize.skip_special, "Leave special tokens out");
  command->add_flag("--jsonl", detokenize.jsonl,
                    "Each input line is an array of ids, each output line a JSON string");
  return command;
}

CLI::App* add_template(CLI::App& app, TemplateCommand& render) {
  CLI::App* command = app.add_subcommand("template", "Show the prompt that a conversation becomes");
  command->add_option("DIR", render.directory, "A model's folder, packed or not")->required();
  command->add_option("--messages", render.messages, "A JSON file of messages; -: standard input")
      ->required();
  command->add_option("--tools", render.tools, "A JSON file of tools, in OpenAI's form");
  command->add_option("--chat-template,--chat-template-file", render.chat_template,
                      "A Jinja file instead of the model's own template");
  command->add_option("--chat-template-kwargs", render.kwargs, "A JSON object of variables for the template");
  command->add_flag("--no-generation-prompt", render.no_generation_prompt, "Do not open the reply");
  command->add_flag("--ids", render.ids, "Print the prompt's token ids as a JSON array instead");
  return command;
}

CLI::App* add_perplexity(CLI::App& app, PerplexityCommand& perplexity) {
  CLI::App* command = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  command
      ->add_option("MODEL", perplexity.model, "A packed model, or a checkpoint (packed into the cache, once)")
      ->required();
  command->add_option("FILE", perplexity.file, "The text")->required();
  command->add_option("-c,--ctx-size", perplexity.window, "Tokens of a window (default 512)")
      ->check(CLI::Range(3u, 1u << 20));
  add_engine(*command, perplexity.engine);
  add_streaming(*command, perplexity.engine.streaming);
  command->add_flag("--price", perplexity.price,
                    "Also run with --precision exact --kv f32, and say what the difference costs");
  command->add_flag("--json", perplexity.json, "Print the same numbers as JSON");
  take_environment(*command);
  return command;
}

CLI::App* add_bench(CLI::App& app, BenchCommand& bench) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure how fast a model runs here, beside what the machine could do");
  command->add_option("MODEL", bench.model, "A packed model, or a checkpoint (packed into the cache, once)")
      ->required();
  command->add_option("--prompt", bench.prompt, "Tokens of the prompt (default 512)")
      ->check(CLI::Range(0u, 1u << 20));
  command->add_option("--decode", bench.decode, "Tokens that follow, one by one (default 64)")
      ->check(CLI::Range(0u, 1u << 20));
  command->add_option("--repeat", bench.repeat, "Rounds that are counted (default 3)")
      ->check(CLI::Range(1u, 1000u));
  command->add_option("--warm-up", bench.warm_up, "Rounds before them (default 1)")
      ->check(CLI::Range(0u, 1000u));
  command->add_option("--parallel", bench.batch, "Sessions that decode together (default 1)")
      ->check(CLI::Range(1u, 256u));
  command->add_option(
      "--routing", bench.routing,
      "Which experts are wanted: model, uniform, zipf:S as in zipf:1.1, or trace:FILE (default: model)");
  command->add_option("--write-routing", bench.write_routing, "Write the model's choices, for trace:FILE");
  command->add_option("--seed", bench.seed, "Other tokens and other choices (default 0)");
  command
      ->add_option(
          "--without", bench.without,
          "Switch a technique off: overlap, pieces, window, fixed-buffers, sweeps, prefetch; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--no-limits", bench.no_limits,
                    "Do not measure what memory, processor and drive could do");
  command
      ->add_option("--against", bench.against,
                   "Compare with another program's tokens a second: NAME=DECODE or NAME=DECODE,PROMPT; may "
                   "be repeated")
      ->take_all();
  command->add_flag("--json", bench.json, "Print the same numbers as JSON");
  add_engine(*command, bench.engine);
  add_streaming(*command, bench.engine.streaming);
  return command;
}

Result<std::vector<std::string>> with_long_names(int argc, char** argv) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kNames{
      {{"-hf", "--hf-repo"}, {"-sys", "--system-prompt"}}};
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::vector<std::string> arguments;
  bool is_literal = false;  // after "--", and what follows -p or its like, is not looked at
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool is_value = !arguments.empty() && (arguments.back() == "-p" || arguments.back() == "--prompt" ||
                                                 arguments.back() == "--stop");
    const bool is_word =
        argument.size() > 2 && argument[0] == '-' && std::ranges::all_of(argument.substr(1), is_letter);
    if (is_literal || is_value || !is_word) {
      arguments.emplace_back(argument);
      is_literal |= argument == "--";
      continue;
    }
    const auto* const known =
        std::ranges::find(kNames, argument, [](const auto& pair) { return pair.first; });
    if (known == kNames.end())
      return Error{ErrorCode::invalid_argument, fmt::format("there is no flag {}", printable(argument))};
    arguments.emplace_back(known->second);
  }
  return arguments;
}

}  // namespace moeflux::cli
