#include "generation/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/states.h"
#include "generation/testing/test_text.h"
#include "io/testing/temporary_directory.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;

TEST(ModelText, ReadsTernsFiles) {
  const ModelText& text = tern_text();
  EXPECT_EQ(text.tokenizer().vocabulary_size(), 4041u);
  EXPECT_NE(text.chat_templates(), nullptr);
  EXPECT_THAT(text.end_tokens(), ElementsAre(TokenId(4032), TokenId(4034)));
  EXPECT_EQ(text.defaults().temperature, 0.7);
  EXPECT_EQ(text.defaults().top_k, 20u);
  EXPECT_EQ(text.reply_format().tools, ToolFormat::qwen_xml);
  EXPECT_EQ(text.json_vocabulary().size(), 4041u);
  EXPECT_EQ(&text.json_vocabulary(), &text.json_vocabulary());
}

struct AFolder : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem files;

  AFolder() { std::filesystem::copy(tern_directory() / "tokenizer.json", temporary / "tokenizer.json"); }
  Result<ModelText> opened() { return ModelText::open(files, temporary.path()); }
};

TEST_F(AFolder, NeedsOnlyATokenizer) {
  const Result<ModelText> text = opened();
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_EQ(text->chat_templates(), nullptr);
  EXPECT_TRUE(text->end_tokens().empty());
  EXPECT_EQ(text->reply_format().tools, ToolFormat::none);
  const Result<ModelText> nothing = ModelText::open(files, temporary / "nothing");
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code(), ErrorCode::not_found);
  EXPECT_THAT(nothing, States("tokenizer.json"));
}

TEST_F(AFolder, MayHaveItsTemplateInTheConfigOrInAFile) {
  temporary.write("tokenizer_config.json",
                  R"({"chat_template":"<think>{{ messages }}</think>","eos_token":"<|im_end|>"})");
  const Result<ModelText> text = opened();
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_NE(text->chat_templates(), nullptr);
  EXPECT_TRUE(text->reply_format().reasoning);
  EXPECT_THAT(text->end_tokens(), ElementsAre(TokenId(4034)));
  temporary.write("chat_template.jinja", "{{ messages[0].content }}");
  const Result<ModelText> with_file = opened();
  ASSERT_TRUE(with_file) << with_file.error().message();
  EXPECT_FALSE(with_file->reply_format().reasoning);  // the file wins
}

TEST_F(AFolder, NamesTheFileThatIsInvalid) {
  temporary.write("generation_config.json", R"({"temperature":"hot"})");
  EXPECT_THAT(opened(), States("generation_config.json"));
  temporary.write("generation_config.json", "{}");
  temporary.write("tokenizer_config.json", "{");
  EXPECT_THAT(opened(), States("tokenizer_config.json"));
  temporary.write("tokenizer_config.json", "{}");
  temporary.write("chat_template.jinja", "a\n{% if %}");
  Result<ModelText> text = opened();  // only chats need it
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_EQ(text->chat_templates(), nullptr);
  EXPECT_THAT(text->template_error()->message(), States("chat_template.jinja:2"));
  ASSERT_TRUE(text->use_template("x", "mine.jinja"));
  EXPECT_FALSE(text->template_error().has_value());
}

TEST_F(AFolder, AcceptsAnotherTemplate) {
  Result<ModelText> text = opened();
  ASSERT_TRUE(text);
  ASSERT_TRUE(text->use_template("<tool_call><function=", "mine.jinja"));
  EXPECT_EQ(text->reply_format().tools, ToolFormat::qwen_xml);
  const Status wrong = text->use_template("{{", "mine.jinja");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong, States("mine.jinja:1"));
}

}  // namespace
}  // namespace moeflux
