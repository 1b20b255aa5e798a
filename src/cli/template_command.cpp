#include "base/sizes.h"
#include "cli/input.h"
#include "cli/tokenizing.h"
#include "generation/model_text.h"
#include "generation/prompt.h"
#include "text/messages.h"

namespace moeflux::cli {
namespace {

constexpr std::uint64_t kMaxFileBytes = 16 * kMiB;

Result<ChatInput> read_input(FileSystem& files, const TemplateCommand& command, std::istream& in) {
  ChatInput input;
  MF_TRY(const NamedText messages, read_file_or_input(files, command.messages, in, kMaxFileBytes));
  MF_TRY(input.messages, parse_messages(messages.text, messages.name));
  if (!command.tools.empty()) {
    MF_TRY(const std::string tools, files.read_text(command.tools, kMaxFileBytes));
    MF_TRY(input.tools, parse_tools(tools, command.tools));
  }
  MF_TRY(input.kwargs, parse_template_kwargs(command.kwargs));
  input.add_generation_prompt = !command.no_generation_prompt;
  input.now = local_time();
  return input;
}

}  // namespace

Status run_template(FileSystem& files, const TemplateCommand& command, std::istream& in, Output out) {
  MF_TRY(ModelText text, ModelText::open(files, command.directory));
  if (!command.chat_template.empty()) {
    MF_TRY(const std::string source, files.read_text(command.chat_template, kMaxFileBytes));
    MF_TRY_STATUS(text.use_template(source, command.chat_template));
  }
  MF_TRY(const ChatInput input, read_input(files, command, in));
  if (command.ids) {
    MF_TRY(const Prompt prompt, chat_prompt(text, input));
    return out(json_array(prompt.tokens) + "\n");
  }
  MF_TRY(const RenderedPrompt rendered, render_chat(text, input));
  return out(rendered.text);
}

}  // namespace moeflux::cli
