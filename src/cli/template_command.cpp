#include <fmt/format.h>

#include "base/printable.h"
#include "base/sizes.h"
#include "cli/talk.h"
#include "cli/tokenizing.h"
#include "generation/model_text.h"
#include "generation/prompt.h"
#include "text/messages.h"

namespace moeflux::cli {
namespace {

constexpr std::uint64_t kMaxFileBytes = 16 * kMiB;

Result<ChatInput> read_input(FileSystem& files, const TemplateCommand& command, std::istream& in) {
  ChatInput input;
  const bool is_input = command.messages == "-";
  MF_TRY(const std::string messages, is_input ? read_all(in, kMaxFileBytes, "standard input")
                                              : files.read_text(command.messages, kMaxFileBytes));
  MF_TRY(input.messages, parse_messages(messages, is_input ? "standard input" : command.messages));
  if (!command.tools.empty()) {
    MF_TRY(const std::string tools, files.read_text(command.tools, kMaxFileBytes));
    MF_TRY(input.tools, parse_tools(tools, command.tools));
  }
  if (!command.kwargs.empty()) {
    MF_TRY(input.kwargs, parse_json(command.kwargs, "--chat-template-kwargs"));
    if (!input.kwargs.is_object())
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("--chat-template-kwargs takes a JSON object, found '{}'", printable(command.kwargs))};
  }
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
  MF_TRY(const Prompt prompt, chat_prompt(text, input));
  if (command.ids) return out(json_array(prompt.tokens) + "\n");
  MF_TRY(const RenderedPrompt rendered, text.chat_templates()->render(input));
  return out(rendered.text);
}

}  // namespace moeflux::cli
