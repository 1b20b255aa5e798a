#pragma once
// What a generation starts from: the prompt's tokens and the format of the reply. Plain values and pure
// functions.

#include <cstdint>
#include <ctime>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "generation/model_text.h"
#include "text/reply/reply_format.h"
#include "text/template/chat_template.h"
#include "text/template/messages.h"

namespace moeflux {

struct Prompt {
  std::vector<TokenId> tokens;
  // The prompt of the next turn begins with this many of the tokens, whatever the reply: the conversation up
  // to the end of its last message. Templates drop the reasoning of earlier turns, so the next prompt differs
  // right after it, which makes it the best place for a checkpoint. 0: unknown.
  std::uint32_t stable_tokens = 0;
  ReplyFormat reply;
};

// The current local time, for templates that state the date (ChatInput::now).
std::tm local_time();

// Renders a conversation's prompt with the model's template; not_found if it has none.
Result<RenderedPrompt> render_chat(const ModelText& text, const ChatInput& input);

// Renders and tokenizes a conversation. Text of users and tools never becomes a special token.
Result<Prompt> chat_prompt(const ModelText& text, const ChatInput& input);

// Tokenizes a text to be continued; special tokens in it are recognized only if `with_special`. The tokens
// that the tokenizer's post-processor puts before a text come first. The reply is plain text.
Result<Prompt> text_prompt(const ModelText& text, std::string_view words, bool with_special);

// The length of the longest common prefix.
std::uint32_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b);

}  // namespace moeflux
