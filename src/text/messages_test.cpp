#include "text/messages.h"

#include <gtest/gtest.h>

#include <string>

namespace moeflux {
namespace {

std::string refusal(std::string_view json) {
  const auto messages = parse_messages(json, "chat.json");
  return messages ? "accepted" : messages.error().message();
}

TEST(Messages, PassThroughWhatTemplatesLookAt) {
  const std::string text = R"([{"role":"user","content":"a","name":"n"},)"
                           R"({"role":"assistant","content":null,"reasoning_content":"r"},)"
                           R"({"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"x"}]}])";
  const auto messages = parse_messages(text, "chat.json");
  ASSERT_TRUE(messages) << messages.error().message();
  EXPECT_EQ(messages->dump(), text);
}

TEST(Messages, OpenTheArgumentsOfToolCalls) {
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

TEST(Messages, SayWhereTheyAreWrong) {
  EXPECT_EQ(refusal("{}"), "chat.json: expected an array of messages, found an object");
  EXPECT_EQ(refusal("[]"), "chat.json: there is no message");
  EXPECT_EQ(refusal("[1]"), "chat.json: messages[0]: expected a message as an object, found 1");
  EXPECT_EQ(refusal("[{}]"), "chat.json: messages[0]: 'role' is missing");
  EXPECT_EQ(refusal(R"([{"role":7}])"), "chat.json: messages[0].role: expected a string, found 7");
  EXPECT_EQ(refusal(R"([{"role":"user","content":7}])"),
            "chat.json: messages[0].content: expected a string, null or an array of parts, found 7");
  EXPECT_EQ(refusal(R"([{"role":"user","content":"a"},{"role":"user","content":["b"]}])"),
            "chat.json: messages[1].content[0]: expected a part of a content as an object, found \"b\"");
  EXPECT_EQ(refusal(R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}])"),
            "chat.json: messages[0].tool_calls[0].function: 'name' is missing");
  EXPECT_EQ(refusal(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}])"),
            "chat.json: messages[0].tool_calls[0].function.arguments: expected a string of JSON that is an "
            "object, found an array of 1");
  EXPECT_NE(refusal(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])")
                .find("messages[0].tool_calls[0].function.arguments:1:"),
            std::string::npos);
}

TEST(Messages, RefuseWhatIsNotTextByName) {
  const auto messages =
      parse_messages(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])", "chat.json");
  ASSERT_FALSE(messages);
  EXPECT_EQ(messages.error().code(), ErrorCode::unsupported);
  EXPECT_EQ(messages.error().message(),
            "chat.json: messages[0].content[0]: parts of type 'image_url' are not supported, only text is");
}

TEST(Messages, ToolsAreAnArrayOfObjects) {
  EXPECT_TRUE(parse_tools(R"([{"type":"function","function":{"name":"f"}}])", "tools.json"));
  EXPECT_TRUE(parse_tools("null", "tools.json"));
  EXPECT_FALSE(parse_tools("{}", "tools.json"));
  EXPECT_FALSE(parse_tools("[1]", "tools.json"));
}

}  // namespace
}  // namespace moeflux
