#include "text/template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/testing/states.h"

namespace moeflux {
namespace {

using test::States;

std::string file_text(const std::string& path) {
  std::ifstream file(std::string(MOEFLUX_REPOSITORY) + "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

ChatInput asking(const std::string& content) {
  ChatInput input;
  input.messages = Json::array({{{"role", "user"}, {"content", content}}});
  return input;
}

std::string prompt_of(const Result<RenderedPrompt>& prompt) {
  return prompt ? prompt->text : "error: " + prompt.error().message();
}

std::string rendered(std::string_view source, const ChatInput& input) {
  const auto parsed = ChatTemplate::parse(source, "t");
  return parsed ? prompt_of(parsed->render(input)) : parsed.error().message();
}

TEST(ChatTemplate, RendersTheGoldenPromptsOfTern) {
  const auto templates = ChatTemplates::from_model(file_text("models/tern/tokenizer_config.json"),
                                                   file_text("models/tern/chat_template.jinja"));
  ASSERT_TRUE(templates) << templates.error().message();
  const auto goldens = parse_json(file_text("tests/goldens/tern/golden_chat.json"), "golden_chat.json");
  ASSERT_TRUE(goldens) << goldens.error().message();
  ASSERT_GE(goldens->size(), 8u);
  for (const Json& golden : *goldens) {
    ChatInput input;
    const auto messages = check_messages(golden["messages"], "golden");
    ASSERT_TRUE(messages) << messages.error().message();
    input.messages = *messages;
    input.tools = golden["tools"];
    EXPECT_EQ(prompt_of(templates->render(input)), golden["prompt"].get<std::string>());
  }
}

TEST(ChatTemplate, DefinesTheVariablesOfHuggingFace) {
  ChatInput input = asking("hi");
  input.kwargs = {{"enable_thinking", false}};
  EXPECT_EQ(rendered("{{ tools }} {{ documents }} {{ add_generation_prompt }} {{ enable_thinking }} {{ "
                     "messages[0].role }}",
                     input),
            "None None True False user");
  EXPECT_EQ(rendered("{{ bos_token }}{{ bos_token is defined }}", input), "False");
}

// The bytes of the rendering that do not depend on add_generation_prompt.
std::size_t conversation_bytes(std::string_view source) {
  const auto parsed = ChatTemplate::parse(source, "t");
  EXPECT_TRUE(parsed) << parsed.error().message();
  const auto prompt = parsed->render(asking("hi"));
  EXPECT_TRUE(prompt) << prompt.error().message();
  return prompt->conversation_bytes;
}

TEST(ChatTemplate, KnowsWhereTheGenerationPromptBegins) {
  EXPECT_EQ(conversation_bytes("<{{ messages[0].content }}>{% if add_generation_prompt %}A{% endif %}"), 4u);
  EXPECT_EQ(conversation_bytes("12{{ '' if not add_generation_prompt else 'A' }}{{ add_generation_prompt }}"),
            2u);
  EXPECT_EQ(conversation_bytes("12{% if false and add_generation_prompt %}{% endif %}3"), 3u);
  EXPECT_EQ(conversation_bytes("no generation prompt"), 20u);
  EXPECT_EQ(conversation_bytes("{% set generation = add_generation_prompt %}123"), 0u);
}

TEST(ChatTemplate, KnowsThatFromInsideCapturedOutput) {
  EXPECT_EQ(conversation_bytes("1{% set x %}23{{ add_generation_prompt }}{% endset %}{{ x }}"), 1u);
  EXPECT_EQ(conversation_bytes(
                "1{% filter upper %}b{% set x %}c{{ add_generation_prompt }}{% endset %}{% endfilter %}"),
            1u);
  EXPECT_EQ(conversation_bytes("{% macro end() %}ab{{ add_generation_prompt }}{% endmacro %}12{{ end() }}"),
            2u);
  EXPECT_EQ(conversation_bytes("{% set x %}23{% endset %}1{{ x }}{{ add_generation_prompt }}"), 3u);
}

TEST(ChatTemplate, CountsNoTestForBeingDefinedAsAUseOfTheGenerationPrompt) {
  EXPECT_EQ(conversation_bytes(
                "{% if add_generation_prompt is not defined %}x{% endif %}12"
                "{% if add_generation_prompt is undefined %}x{% endif %}{{ add_generation_prompt }}"),
            2u);
  EXPECT_EQ(conversation_bytes("1{% if add_generation_prompt is true %}x{% endif %}"), 1u);
}

TEST(ChatTemplate, MarksSpecialTokensAsTheTemplatesText) {
  const auto parsed = ChatTemplate::parse("{{ bos_token }}{{ messages[0].content }}", "t");
  const auto prompt = parsed->render(asking("<s>"), {{"bos_token", "<s>"}});
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->text, "<s><s>");
  EXPECT_EQ(prompt->data, (std::vector<TextRange>{{3, 6}}));
}

TEST(ChatTemplate, ReadsSpecialTokensInBothForms) {
  const auto tokens = special_tokens_of(
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null})");
  ASSERT_TRUE(tokens);
  EXPECT_EQ(*tokens, (SpecialTokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  EXPECT_FALSE(special_tokens_of(R"({"bos_token": 7})"));
}

TEST(ChatTemplate, ContinuesTheLastMessage) {
  ChatInput input = asking("a");
  input.messages.push_back({{"role", "assistant"}, {"content", "begun "}});
  input.add_generation_prompt = false;
  input.continue_final_message = true;
  const auto parsed = ChatTemplate::parse("{% for m in messages %}<{{ m.content }}>{% endfor %}", "t");
  const auto prompt = parsed->render(input);
  ASSERT_TRUE(prompt) << prompt.error().message();
  EXPECT_EQ(prompt->text, "<a><begun ");
  EXPECT_EQ(prompt->data, (std::vector<TextRange>{{1, 2}, {4, 10}}));
  EXPECT_EQ(rendered("{% for m in messages %}<{{ m.content|trim }}>{% endfor %}", input), "<a><begun");
  input.add_generation_prompt = true;
  EXPECT_THAT(rendered("x", input), States("continue", "not both"));
}

TEST(ChatTemplate, RejectsVariablesThatHideItsOwn) {
  ChatInput input = asking("a");
  input.kwargs = {{"messages", Json::array()}};
  EXPECT_THAT(rendered("x", input), States("error", "variable 'messages'"));
}

TEST(ChatTemplates, PreferTheFileToTheConfig) {
  const std::string config = R"({"chat_template": "config {{ messages[0].content }}"})";
  EXPECT_EQ(prompt_of(ChatTemplates::from_model(config, std::nullopt)->render(asking("a"))), "config a");
  EXPECT_EQ(prompt_of(ChatTemplates::from_model(config, "file")->render(asking("a"))), "file");
}

TEST(ChatTemplates, UseTheirOwnTemplateForTools) {
  const std::string config = R"({"chat_template": [{"name": "default", "template": "plain"},)"
                             R"( {"name": "tool_use", "template": "tools"},)"
                             R"( {"name": "rag", "template": "{% nosuch %}"}]})";
  const auto templates = ChatTemplates::from_model(config, std::nullopt);
  ASSERT_TRUE(templates) << templates.error().message();
  ChatInput input = asking("a");
  EXPECT_EQ(prompt_of(templates->render(input)), "plain");
  input.tools = Json::array({Json::object()});
  EXPECT_EQ(prompt_of(templates->render(input)), "tools");
}

TEST(ChatTemplates, NameWhatIsMissingOrWrong) {
  const auto none = ChatTemplates::from_model("{}", std::nullopt);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), ErrorCode::not_found);
  EXPECT_THAT(none, States("tokenizer_config.json", "'chat_template'", "missing", "chat_template.jinja"));
  EXPECT_EQ(ChatTemplates::from_model(R"({"chat_template": [{"name": "x", "template": ""}]})", std::nullopt)
                .error()
                .code(),
            ErrorCode::not_found);
  EXPECT_THAT(ChatTemplates::from_model(R"({"chat_template": 7})", std::nullopt),
              States("tokenizer_config.json", "chat_template", "a string", "an array", "found 7"));
  EXPECT_THAT(ChatTemplates::from_model("{}", "\n{{"),
              States("chat_template.jinja:2:", "end of the template", "'}}'"));
}

TEST(ChatTemplates, IncludeOneForDeepSeekV3) {
  ChatInput input;
  input.messages =
      Json::parse(R"([{"role":"system","content":"S"},{"role":"user","content":"U"},)"
                  R"({"role":"assistant","content":"","tool_calls":)"
                  R"([{"function":{"name":"f","arguments":{"a":1}}}]},{"role":"tool","content":"R"},)"
                  R"({"role":"assistant","content":"A"},)"
                  R"({"role":"user","content":"V"}])");
  input.kwargs = {{"thinking", true}};
  EXPECT_EQ(
      rendered(deepseek_v3_template(), input),
      "<｜begin▁of▁sentence｜>S<｜User｜>U<｜Assistant｜><think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
      "function"
      "<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>"
      "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>R<｜tool▁output▁end｜><｜tool▁outputs▁end｜>A<"
      "｜end▁of▁sentence｜>"
      "<｜User｜>V<｜Assistant｜><think>");
  EXPECT_EQ(rendered(deepseek_v3_template(), asking("Hi")),
            "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>");
}

}  // namespace
}  // namespace moeflux
