#include "generation/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace moeflux {
namespace {

Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer, const RenderedPrompt& rendered) {
  std::vector<TokenId> tokens;
  MF_TRY_STATUS(tokenizer.encode(rendered.text, rendered.data, tokens));
  return tokens;
}

// A generation prompt is a few words. A longer one means that the template uses add_generation_prompt early,
// so the text before its use reveals little.
constexpr std::size_t kMaxGenerationPromptBytes = 256;

// The tokens of the generation prompt that follows `conversation_bytes` of `rendered`, if they are its last
// tokens for sure: an added token begins them, which the tokenizer never joins with the text before it.
// Encodes the few bytes of the generation prompt alone.
Result<std::optional<std::size_t>> generation_prompt_tokens(const Tokenizer& tokenizer,
                                                            const RenderedPrompt& rendered,
                                                            std::size_t conversation_bytes,
                                                            std::span<const TokenId> tokens) {
  using Found = std::optional<std::size_t>;
  if (rendered.text.size() - conversation_bytes > kMaxGenerationPromptBytes) return Found();
  if (!rendered.data.empty() && rendered.data.back().end > conversation_bytes) return Found();
  std::vector<TokenId> last;
  MF_TRY_STATUS(
      tokenizer.encode(std::string_view(rendered.text).substr(conversation_bytes), AddedTokens::all, last));
  if (last.empty() || last.size() >= tokens.size() || !tokenizer.is_added(last.front())) return Found();
  if (!std::ranges::equal(last, tokens.last(last.size()))) return Found();
  return Found(last.size());
}

// How many tokens the prompt shares with the conversation alone, which is how the prompt of the next turn
// begins. Renders the conversation again only if the template does not end with the generation prompt.
Result<std::uint32_t> stable_tokens(const ModelText& text, const ChatInput& input,
                                    const RenderedPrompt& prompt, std::span<const TokenId> tokens) {
  if (!input.add_generation_prompt || prompt.conversation_bytes == prompt.text.size()) return 0;
  MF_TRY(const std::optional<std::size_t> last,
         generation_prompt_tokens(text.tokenizer(), prompt, prompt.conversation_bytes, tokens));
  if (last) return static_cast<std::uint32_t>(tokens.size() - *last);
  ChatInput without = input;
  without.add_generation_prompt = false;
  const Result<RenderedPrompt> conversation = render_chat(text, without);
  if (!conversation) return 0;  // some templates refuse to render without a generation prompt
  MF_TRY(const std::vector<TokenId> conversation_tokens, encode(text.tokenizer(), *conversation));
  const std::uint32_t common = common_prefix(conversation_tokens, tokens);
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
        fmt::format(
            "{}: no chat template: neither chat_template.jinja nor 'chat_template' in tokenizer_config.json",
            text.directory().native())};
  return text.chat_templates()->render(input);
}

Result<Prompt> chat_prompt(const ModelText& text, const ChatInput& input) {
  MF_TRY(const RenderedPrompt rendered, render_chat(text, input));
  Prompt prompt;
  MF_TRY(prompt.tokens, encode(text.tokenizer(), rendered));
  MF_TRY(prompt.stable_tokens, stable_tokens(text, input, rendered, prompt.tokens));
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
