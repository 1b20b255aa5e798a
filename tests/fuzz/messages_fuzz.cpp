// Input: a file of messages.

#include "fuzz/promises.h"
#include "text/template/chat_template.h"
#include "text/template/messages.h"

namespace moeflux::fuzz {
namespace {

void require_ready(const Json& message) {
  MF_REQUIRE(
      message.is_object() && message.find("role") != message.end() && message.find("role")->is_string(),
      "a message has a role");
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return;
  for (const Json& call : *calls) {
    const auto function = call.find("function");
    const Json& body = function != call.end() && !function->is_null() ? *function : call;
    const auto arguments = body.find("arguments");
    MF_REQUIRE(arguments == body.end() || arguments->is_object(), "arguments are an object");
  }
}

void read(std::string_view text) {
  static const ChatTemplate our_template = *ChatTemplate::parse(deepseek_v3_template(), "deepseek");
  const Result<Json> messages = parse_messages(text, "chat.json");
  if (!messages) return require_refusal(messages.error());
  for (const Json& message : *messages) require_ready(message);
  ChatInput input;
  input.messages = *messages;
  const auto prompt = our_template.render(input);
  if (!prompt) require_fit_for_people(prompt.error().message());
}

}  // namespace
}  // namespace moeflux::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  moeflux::fuzz::read(moeflux::fuzz::text_of(data, size));
  return 0;
}
