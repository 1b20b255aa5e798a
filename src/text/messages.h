#pragma once
// A conversation as the OpenAI API writes it, checked and made ready for a chat template.
//
//   [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": null, "tool_calls": [...]}, ...]
//
// Messages stay JSON, because templates look at whatever keys they know: name, tool_call_id,
// reasoning_content and the rest pass through unchanged. Two things happen to them: arguments of tool calls
// that are a string of JSON, as the API has them, become an object, because templates go through them; and
// parts of a content that are not text are refused by name. Plain values and pure functions: any thread.

#include <ctime>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace moeflux {

// Long conversations fit: a million tokens take some 4 MB.
inline constexpr JsonLimits kMessageLimits = {.bytes = 16 * kMiB, .depth = 64, .values = 512 * 1024};

// What a prompt is made of. All text in here is data: none of it becomes a special token.
struct ChatInput {
  Json messages = Json::array();  // as check_messages() leaves them
  Json tools;                     // as check_tools() accepts them: an array, or null
  Json kwargs = Json::object();   // more variables for the template: {"enable_thinking": false}
  bool add_generation_prompt = true;
  // The last message is to be continued: the prompt ends with its content. Excludes add_generation_prompt.
  bool continue_final_message = false;
  std::optional<std::tm> now;  // the local time, for templates that tell the date
};

// `name` calls the document in messages: "chat.json: messages[2].role: expected a string, found 7".
Result<Json> parse_messages(std::string_view json, std::string_view name);
Result<Json> parse_tools(std::string_view json, std::string_view name);

// The same for documents that are parsed already.
Result<Json> check_messages(Json messages, std::string_view name);
Status check_tools(const Json& tools, std::string_view name);

}  // namespace moeflux
