#include "generation/prompt.h"

#include <fmt/format.h>

#include <algorithm>

namespace moeflux {
namespace {

Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer, const RenderedPrompt& rendered) {
  std::vector<TokenId> tokens;
  MF_TRY_STATUS(tokenizer.encode(rendered.text, rendered.data, tokens));
  return tokens;
}

// What the prompt has in common with the conversation alone, as the next turn will begin.
Result<std::uint32_t> stable_tokens(const ModelText& text, const ChatInput& input,
                                    std::span<const TokenId> tokens) {
  if (!input.add_generation_prompt) return 0;
  ChatInput without = input;
  without.add_generation_prompt = false;
  const Result<RenderedPrompt> rendered = render_chat(text, without);
  if (!rendered) return 0;  // a template may insist on it: then nothing is known
  MF_TRY(const std::vector<TokenId> conversation, encode(text.tokenizer(), *rendered));
  const std::uint32_t common = common_prefix(conversation, tokens);
  return common == tokens.size() ? 0 : common;
}

}  // namespace

std::uint32_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto [end, unused] = std::ranges::mismatch(a, b);
  return static_cast<std::uint32_t>(end - a.begin());
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return local;
}

Result<RenderedPrompt> render_chat(const ModelText& text, const ChatInput& input) {
  if (text.template_error()) return *text.template_error();
  if (text.chat_templates() == nullptr)
    return Error{
        ErrorCode::not_found,
        fmt::format("{}: the model has no chat template, neither chat_template.jinja nor 'chat_template' in "
                    "tokenizer_config.json",
                    text.directory().native())};
  return text.chat_templates()->render(input);
}

Result<Prompt> chat_prompt(const ModelText& text, const ChatInput& input) {
  MF_TRY(const RenderedPrompt rendered, render_chat(text, input));
  Prompt prompt;
  MF_TRY(prompt.tokens, encode(text.tokenizer(), rendered));
  MF_TRY(prompt.stable_tokens, stable_tokens(text, input, prompt.tokens));
  prompt.reply = text.reply_format();
  if (input.tools.is_null() || input.tools.empty()) prompt.reply.tools = ToolFormat::none;
  prompt.reply.starts_inside_reasoning = prompt.reply.reasoning && prompt_opens_reasoning(rendered.text);
  return prompt;
}

Result<Prompt> text_prompt(const ModelText& text, std::string_view words, bool with_special) {
  const Tokenizer& tokenizer = text.tokenizer();
  Prompt prompt;
  prompt.tokens.assign(tokenizer.begin_tokens().begin(), tokenizer.begin_tokens().end());
  MF_TRY_STATUS(
      tokenizer.encode(words, with_special ? AddedTokens::all : AddedTokens::ordinary, prompt.tokens));
  return prompt;
}

}  // namespace moeflux
