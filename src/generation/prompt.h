#pragma once
// What a generation starts from: tokens, and how the reply to them is to be read. Plain values and pure functions.

#include <cstdint>
#include <ctime>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "generation/model_text.h"
#include "text/chat_template.h"
#include "text/messages.h"
#include "text/reply_format.h"

namespace moeflux {

struct Prompt {
  std::vector<TokenId> tokens;
  // So many of them the prompt of the next turn will have as well, whatever the reply: the conversation up to the end
  // of the last message. It is where a checkpoint is worth its memory: templates drop the reasoning of earlier turns,
  // so the next prompt leaves this one right behind it. 0: nothing is known.
  std::uint32_t stable_tokens = 0;
  ReplyFormat reply;
};

// Now, where this process is: for templates that tell the date (ChatInput::now).
std::tm local_time();

// The text of a conversation's prompt, by the model's template; an error if it has none.
Result<RenderedPrompt> render_chat(const ModelText& text, const ChatInput& input);

// A conversation, through the model's template. What users and tools said cannot become a special token.
Result<Prompt> chat_prompt(const ModelText& text, const ChatInput& input);

// A text to go on with, as it is; special tokens in it are special only if `with_special`. What the tokenizer's
// post-processor puts before a text (a token that begins it) comes first. The reply is plain text.
Result<Prompt> text_prompt(const ModelText& text, std::string_view words, bool with_special);

// The beginning that both have in common.
std::uint32_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b);

}  // namespace moeflux
