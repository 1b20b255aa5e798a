#include "text/reply/reply_format.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

TEST(ReplyFormat, IsDetectedFromTheTemplate) {
  EXPECT_EQ(detect_tool_format("reply with <tool_call>\\n<function=NAME>"), ToolFormat::qwen_xml);
  EXPECT_EQ(detect_tool_format(R"('<tool_call>\n{\"name\": <function-name>, \"arguments\": ...}')"),
            ToolFormat::hermes_json);
  EXPECT_EQ(detect_tool_format(R"(<tool_call>{"name": ...}</tool_call>)"), ToolFormat::hermes_json);
  EXPECT_EQ(detect_tool_format("{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'}}"), ToolFormat::deepseek_v3);
  EXPECT_EQ(detect_tool_format("{{ message.content }}"), ToolFormat::none);
  EXPECT_EQ(detect_tool_format("an html page with <function=x>"), ToolFormat::none);
  EXPECT_EQ(detect_tool_format(""), ToolFormat::none);
}

TEST(ReplyFormat, ReasoningIsDetectedByItsClosingTag) {
  EXPECT_TRUE(detect_reasoning("{%- if '</think>' in content %}"));
  EXPECT_FALSE(detect_reasoning("{{ content }}"));
}

TEST(ReplyFormat, DetectsAPromptThatOpensReasoning) {
  EXPECT_TRUE(prompt_opens_reasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_TRUE(prompt_opens_reasoning("<｜Assistant｜><think>"));
  EXPECT_FALSE(prompt_opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(prompt_opens_reasoning("<|im_start|>assistant\n"));
  EXPECT_FALSE(prompt_opens_reasoning(""));
}

TEST(ReplyFormat, HasNames) {
  EXPECT_EQ(name_of(ToolFormat::none), "none");
  EXPECT_EQ(name_of(ToolFormat::qwen_xml), "qwen_xml");
  EXPECT_EQ(name_of(ToolFormat::hermes_json), "hermes_json");
  EXPECT_EQ(name_of(ToolFormat::deepseek_v3), "deepseek_v3");
}

}  // namespace
}  // namespace moeflux
