#include "cli/commands/template.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands/tokenize.h"
#include "cli/console.h"
#include "cli/flags/shared_flags.h"
#include "cli/input.h"
#include "generation/model_text.h"
#include "generation/prompt.h"
#include "text/template/messages.h"

namespace moeflux::cli {
namespace {

Result<ChatInput> read_input(FileSystem& files, const TemplateFlags& flags, std::istream& in) {
  ChatInput input;
  MF_TRY(const NamedText messages,
         read_file_or_input(files, "--messages", flags.messages, in, kMaxTemplateBytes));
  MF_TRY(input.messages, parse_messages(messages.text, messages.name));
  if (!flags.rendering.tools.empty()) {
    MF_TRY(const std::string tools,
           read_flag_file(files, kToolsFlag, flags.rendering.tools, kMaxTemplateBytes));
    MF_TRY(input.tools, parse_tools(tools, flags.rendering.tools));
  }
  MF_TRY(input.kwargs, parse_template_kwargs(flags.rendering.kwargs));
  input.add_generation_prompt = !flags.no_generation_prompt;
  input.now = local_time();
  return input;
}

}  // namespace

Status run_template(FileSystem& files, const TemplateFlags& flags, std::istream& in, Output out) {
  MF_TRY(ModelText text, ModelText::open(files, flags.directory));
  if (!flags.rendering.chat_template.empty()) {
    MF_TRY(const std::string source,
           read_flag_file(files, kChatTemplateFlag, flags.rendering.chat_template, kMaxTemplateBytes));
    MF_TRY_STATUS(text.use_template(source, flags.rendering.chat_template));
  }
  MF_TRY(const ChatInput input, read_input(files, flags, in));
  if (flags.ids) {
    MF_TRY(const Prompt prompt, chat_prompt(text, input));
    return out(json_array(prompt.tokens) + "\n");
  }
  MF_TRY(const RenderedPrompt rendered, render_chat(text, input));
  return out(rendered.text);
}

Command add_template(CLI::App& program) {
  CLI::App* const parser = program.add_subcommand("template", "Show the prompt that a conversation becomes");
  const auto flags = std::make_shared<TemplateFlags>();
  parser->add_option("DIR", flags->directory, "A model's folder, packed or not")->required();
  parser->add_option("--messages", flags->messages, "A JSON file of messages; -: standard input")->required();
  add_rendering_flags(*parser, flags->rendering, nullptr);
  parser->add_flag("--no-generation-prompt", flags->no_generation_prompt,
                   "Do not append the start of the reply");
  parser->add_flag("--ids", flags->ids, "Print the prompt's token ids as a JSON array instead");
  return {parser, [flags](const Shell& shell) {
            return finish(run_template(shell.files, *flags, shell.in, write_output));
          }};
}

}  // namespace moeflux::cli
