#pragma once
// From a conversation to the text of a prompt, by the template that came with the model.
//
// A ChatTemplate is one parsed template; ChatTemplates are those of a model and the special tokens that they
// may name. The prompt says which of its bytes come from the conversation, so that the tokenizer makes
// special tokens only of what the template wrote: a user who writes <|im_end|> wrote ordinary characters.
// Immutable; any thread may render.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/template.h"
#include "text/messages.h"
#include "text/text_range.h"

namespace moeflux {

struct RenderedPrompt {
  std::string text;
  std::vector<TextRange> data;  // what came from the conversation: sorted, disjoint, not touching
};

// Names and texts of special tokens, for templates: {"bos_token", "<|begin|>"}. They are the template's own
// text.
using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

class ChatTemplate {
 public:
  using Limits = jinja::Limits;

  // `name` begins messages: "chat_template.jinja:12: unexpected '}', expected ']'". Errors: see
  // jinja/parser.h.
  static Result<ChatTemplate> parse(std::string_view source, std::string_view name);

  // Errors: see jinja/template.h; `invalid_argument` with "the template says: " is the template refusing the
  // conversation.
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
  // The templates of a model, from the texts of its tokenizer_config.json and, where it has one, its
  // chat_template.jinja, which goes first. `not_found` when neither has a template: the caller may then
  // choose deepseek_v3_template().
  static Result<ChatTemplates> from_model(std::string_view tokenizer_config,
                                          std::optional<std::string_view> jinja_file);
  // One template for everything.
  static ChatTemplates of(ChatTemplate chat, SpecialTokens tokens);

  // By the template named `tool_use`, where there is one and tools are given, else by the default one.
  Result<RenderedPrompt> render(const ChatInput& input, const jinja::Limits& limits = {}) const;

  const SpecialTokens& tokens() const { return tokens_; }

 private:
  std::optional<ChatTemplate> chat_;
  std::optional<ChatTemplate> tool_use_;
  SpecialTokens tokens_;
};

// The special tokens that tokenizer_config.json names: bos_token, eos_token, pad_token, unk_token and their
// like.
Result<SpecialTokens> special_tokens_of(std::string_view tokenizer_config);

// A template for models of the DeepSeek-V3 family that come without one, such as DeepSeek-V3.2. Written by us
// from the format's description; the caller chooses it, nothing falls back to it. `thinking` or
// `enable_thinking` opens the answer with <think>, or closes it at once with </think> when false; without
// them it does neither.
std::string_view deepseek_v3_template();

}  // namespace moeflux
