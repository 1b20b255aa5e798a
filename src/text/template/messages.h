#pragma once
// A conversation in the form of the OpenAI API, checked and prepared for a chat template.
//
//   [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": null, "tool_calls": [...]}, ...]
//
// Messages stay JSON, because templates read keys of their own: name, tool_call_id, reasoning_content and
// others pass through unchanged. Tool call arguments that are a string of JSON, as in the API, become an
// object, because templates iterate over them. Content parts other than text are refused by name. Plain
// values and pure functions, thread-safe.

#include <ctime>
#include <optional>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"

namespace moeflux {

// Enough for long conversations: a million tokens take about 4 MB.
inline constexpr JsonLimits kMessageLimits = {.bytes = 16 * kMiB, .depth = 64, .values = 512 * 1024};

// The input of a prompt. All text in it is data, which never becomes a special token.
struct ChatInput {
  Json messages = Json::array();  // as returned by check_messages()
  Json tools;                     // an array or null, as accepted by check_tools()
  Json kwargs = Json::object();   // further template variables: {"enable_thinking": false}
  bool add_generation_prompt = true;
  // Continues the last message: the prompt ends with its content. Excludes add_generation_prompt.
  bool continue_final_message = false;
  std::optional<std::tm> now;  // the local time, for templates that state the date
};

// `name` begins error messages: "chat.json: messages[2].role: expected a string, found 7".
Result<Json> parse_messages(std::string_view json, std::string_view name);
Result<Json> parse_tools(std::string_view json, std::string_view name);

// The same for parsed documents.
Result<Json> check_messages(Json messages, std::string_view name);
Status check_tools(const Json& tools, std::string_view name);

}  // namespace moeflux
