#include "generation/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generation/test_text.h"
#include "io/temporary_directory.h"

namespace moeflux {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ModelText, OfTernIsWhatItsFilesSay) {
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

TEST_F(AFolder, NeedsATokenizerAndNothingElse) {
  const Result<ModelText> text = opened();
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_EQ(text->chat_templates(), nullptr);
  EXPECT_TRUE(text->end_tokens().empty());
  EXPECT_EQ(text->reply_format().tools, ToolFormat::none);
  const Result<ModelText> nothing = ModelText::open(files, temporary / "nothing");
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code(), ErrorCode::not_found);
  EXPECT_THAT(nothing.error().message(), HasSubstr("tokenizer.json"));
}

TEST_F(AFolder, HasItsTemplateInTheConfigOrInAFile) {
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
  EXPECT_FALSE(with_file->reply_format().reasoning);  // the file goes first
}

TEST_F(AFolder, WithAFileThatIsWrongSaysWhich) {
  temporary.write("generation_config.json", R"({"temperature":"hot"})");
  EXPECT_THAT(opened().error().message(), HasSubstr("generation_config.json"));
  temporary.write("generation_config.json", "{}");
  temporary.write("tokenizer_config.json", "{");
  EXPECT_THAT(opened().error().message(), HasSubstr("tokenizer_config.json"));
  temporary.write("tokenizer_config.json", "{}");
  temporary.write("chat_template.jinja", "a\n{% if %}");
  Result<ModelText> text = opened();  // everything but a chat goes on without it
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_EQ(text->chat_templates(), nullptr);
  EXPECT_THAT(text->template_error()->message(), HasSubstr("chat_template.jinja:2"));
  ASSERT_TRUE(text->use_template("x", "mine.jinja"));
  EXPECT_FALSE(text->template_error().has_value());
}

TEST_F(AFolder, CanBeGivenAnotherTemplate) {
  Result<ModelText> text = opened();
  ASSERT_TRUE(text);
  ASSERT_TRUE(text->use_template("<tool_call><function=", "mine.jinja"));
  EXPECT_EQ(text->reply_format().tools, ToolFormat::qwen_xml);
  const Status wrong = text->use_template("{{", "mine.jinja");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message(), HasSubstr("mine.jinja:1"));
}

}  // namespace
}  // namespace moeflux
