#pragma once
// A ChatTemplate renders a conversation as the text of a prompt, with the template that comes with the model.
//
// ChatTemplates holds the templates of a model and the special tokens that they may name. The prompt marks
// which of its bytes come from the conversation, so that the tokenizer makes special tokens of the template's
// bytes only: <|im_end|> in a user's message stays ordinary text. Immutable, thread-safe.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/template/jinja/limits.h"
#include "text/template/jinja/template.h"
#include "text/template/messages.h"
#include "text/text_range.h"

namespace moeflux {

struct RenderedPrompt {
  std::string text;
  std::vector<TextRange> data;  // bytes from the conversation: sorted, disjoint, not adjacent
  // The bytes that do not depend on add_generation_prompt; a lower bound, exact for templates that end with
  // the generation prompt. All of `text` if the template ignores it.
  std::size_t conversation_bytes = 0;
};

// Names and texts of special tokens for templates: {"bos_token", "<|begin|>"}. They count as the template's
// own text.
using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

class ChatTemplate {
 public:
  using Limits = jinja::Limits;

  // `name` begins error messages: "chat_template.jinja:12: unexpected '}', expected ']'". Fails as
  // jinja::parse() does (syntax/parser.h).
  static Result<ChatTemplate> parse(std::string_view source, std::string_view name);

  // Fails as jinja::Template::render() does (jinja/template.h). `invalid_argument` with "the template says: "
  // means that the template refuses the conversation.
  Result<RenderedPrompt> render(const ChatInput& input, const SpecialTokens& tokens,
                                const Limits& limits = {}) const;
  Result<RenderedPrompt> render(const ChatInput& input, const Limits& limits = {}) const {
    return render(input, {}, limits);
  }

 private:
  explicit ChatTemplate(jinja::Template parsed) : template_(std::move(parsed)) {}

  jinja::Template template_;
};

class ChatTemplates {
 public:
  // The templates of a model, from the texts of its chat_template.jinja, if it has one, or else of its
  // tokenizer_config.json. Fails with `not_found` if neither has a template; the caller may then use
  // deepseek_v3_template().
  static Result<ChatTemplates> from_model(std::string_view tokenizer_config,
                                          std::optional<std::string_view> jinja_file);
  // One template with and without tools.
  static ChatTemplates of(ChatTemplate chat, SpecialTokens tokens);

  // Renders with the template `tool_use` if there is one and `input` has tools, otherwise with the default
  // one.
  Result<RenderedPrompt> render(const ChatInput& input, const jinja::Limits& limits = {}) const;

  const SpecialTokens& tokens() const { return tokens_; }

 private:
  std::optional<ChatTemplate> chat_;
  std::optional<ChatTemplate> tool_use_;
  SpecialTokens tokens_;
};

// The special tokens named in tokenizer_config.json: bos_token, eos_token, pad_token, unk_token and similar.
Result<SpecialTokens> special_tokens_of(std::string_view tokenizer_config);

// A template for models of the DeepSeek-V3 family that come without one, such as DeepSeek-V3.2, written for
// moeflux from the description of the format. It is never used unless the caller chooses it. The variable
// `thinking` or `enable_thinking` begins the answer with <think> if true and </think> if false; without it,
// with neither.
std::string_view deepseek_v3_template();

}  // namespace moeflux
