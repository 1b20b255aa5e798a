#include "text/template/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;

std::string refusal(std::string_view json) {
  const auto messages = parse_messages(json, "chat.json");
  return messages ? "accepted" : messages.error().message();
}

TEST(Messages, KeepTheKeysThatTemplatesRead) {
  const std::string text = R"([{"role":"user","content":"a","name":"n"},)"
                           R"({"role":"assistant","content":null,"reasoning_content":"r"},)"
                           R"({"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"x"}]}])";
  const auto messages = parse_messages(text, "chat.json");
  ASSERT_TRUE(messages) << messages.error().message();
  EXPECT_EQ(messages->dump(), text);
}

TEST(Messages, ParseTheArgumentsOfToolCalls) {
  const auto messages = parse_messages(
      R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"b\": 1, \"a\": [2]}"}},)"
      R"({"function":{"name":"g","arguments":""}},{"name":"h","arguments":{"x":1}}]}])",
      "chat.json");
  ASSERT_TRUE(messages) << messages.error().message();
  const Json& calls = *(*messages)[0].find("tool_calls");
  EXPECT_EQ(calls[0]["function"]["arguments"].dump(), R"({"b":1,"a":[2]})");
  EXPECT_EQ(calls[1]["function"]["arguments"].dump(), "{}");
  EXPECT_EQ(calls[2]["arguments"].dump(), R"({"x":1})");
}

TEST(Messages, NameThePlaceOfABadValue) {
  EXPECT_THAT(refusal("{}"), States("chat.json", "array of messages", "an object"));
  EXPECT_THAT(refusal("[]"), States("chat.json", "message", "none"));
  EXPECT_THAT(refusal("[1]"), States("chat.json", "messages[0]", "an object", "found 1"));
  EXPECT_THAT(refusal("[{}]"), States("chat.json", "messages[0]", "'role'", "missing"));
  EXPECT_THAT(refusal(R"([{"role":7}])"), States("chat.json", "messages[0].role", "a string", 7));
  EXPECT_THAT(refusal(R"([{"role":"user","content":7}])"),
              States("chat.json", "messages[0].content", "a string", "null", "array", 7));
  EXPECT_THAT(refusal(R"([{"role":"user","content":"a"},{"role":"user","content":["b"]}])"),
              States("chat.json", "messages[1].content[0]", "an object", "\"b\""));
  EXPECT_THAT(refusal(R"([{"role":"user","content":[{"text":"b"}]}])"),
              States("chat.json", "messages[0].content[0]", "'type'", "missing"));
  EXPECT_THAT(refusal(R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}])"),
              States("chat.json", "messages[0].tool_calls[0].function", "'name'", "missing"));
  EXPECT_THAT(
      refusal(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}])"),
      States("chat.json", "messages[0].tool_calls[0].function.arguments", "an object", "an array of 1"));
  EXPECT_THAT(refusal(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])"),
              States("messages[0].tool_calls[0].function.arguments:1:"));
}

TEST(Messages, RejectContentOtherThanText) {
  const auto messages =
      parse_messages(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])", "chat.json");
  ASSERT_FALSE(messages);
  EXPECT_EQ(messages.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(messages, States("chat.json", "messages[0].content[0]", "'image_url'", "'text'"));
}

TEST(Messages, RequireToolsToBeAnArrayOfObjects) {
  EXPECT_TRUE(parse_tools(R"([{"type":"function","function":{"name":"f"}}])", "tools.json"));
  EXPECT_TRUE(parse_tools("null", "tools.json"));
  EXPECT_FALSE(parse_tools("{}", "tools.json"));
  EXPECT_FALSE(parse_tools("[1]", "tools.json"));
}

}  // namespace
}  // namespace moeflux
