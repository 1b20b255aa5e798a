#include "source/end_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/source_model.h"
#include "source/testing/original_builder.h"

namespace moeflux {
namespace {

using test::States;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

struct EndTokens : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  Notes notes;
  std::vector<TokenId> family;

  Result<std::vector<TokenId>> found() {
    const std::array folders{temporary.path(), temporary / "mlx"};
    MF_TRY(const TextJson config, read_text_json(disk, folders, "config.json"));
    MF_TRY(const TextJson generation, read_text_json(disk, folders, "generation_config.json"));
    return list_end_tokens(config.reader(), generation.reader(), family, 96, notes);
  }
  std::string refusal() {
    const auto tokens = found();
    return tokens ? "no error" : tokens.error().message();
  }
};
using EndTokensOfFiles = EndTokens;

TEST_F(EndTokensOfFiles, ComeFromTheConfigThenFromTheGenerationSettingsThenFromTheTextConfig) {
  temporary.write("config.json", R"({"eos_token_id": 7, "text_config": {"eos_token_id": [5, 3]}})");
  temporary.write("generation_config.json", R"({"eos_token_id": [9, 7, 3]})");
  EXPECT_THAT(*found(), ElementsAre(TokenId(7), TokenId(9), TokenId(3), TokenId(5)));
  family = {TokenId(11), TokenId(9)};  // before the text_config, which has no end of a turn
  EXPECT_THAT(*found(), ElementsAre(TokenId(7), TokenId(9), TokenId(3), TokenId(11), TokenId(5)));
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(EndTokensOfFiles, AreThoseOfTheOnlyFileThatListsAny) {
  EXPECT_THAT(*found(), IsEmpty());
  temporary.write("config.json", R"({"eos_token_id": null})");
  EXPECT_THAT(*found(), IsEmpty());
  temporary.write("generation_config.json", R"({"eos_token_id": 4})");
  EXPECT_THAT(*found(), ElementsAre(TokenId(4)));
  std::filesystem::remove(temporary / "config.json");
  EXPECT_THAT(*found(), ElementsAre(TokenId(4)));
}

TEST_F(EndTokensOfFiles, AreReadFromTheFirstFolderThatHasTheFile) {
  temporary.write("mlx/config.json", R"({"eos_token_id": 1})");
  temporary.write("mlx/generation_config.json", R"({"eos_token_id": 2})");
  EXPECT_THAT(*found(), ElementsAre(TokenId(1), TokenId(2)));
  temporary.write("generation_config.json", R"({"eos_token_id": 3})");
  EXPECT_THAT(*found(), ElementsAre(TokenId(1), TokenId(3)));
}

TEST_F(EndTokensOfFiles, OutsideTheVocabularyAreAnErrorInTheConfigAndANoteInTheSettings) {
  temporary.write("generation_config.json", R"({"eos_token_id": [96, 95]})");
  EXPECT_THAT(*found(), ElementsAre(TokenId(95)));
  EXPECT_THAT(notes, ElementsAre(States("generation_config.json", "'eos_token_id'", 96)));
  temporary.write("config.json", R"({"eos_token_id": 96})");
  EXPECT_THAT(refusal(), States("config.json", "'eos_token_id'", 96));
}

TEST_F(EndTokensOfFiles, InAFileThatIsNotAnObjectAreAnErrorThatNamesIt) {
  temporary.write("mlx/generation_config.json", "[]");
  EXPECT_THAT(refusal(), States((temporary / "mlx/generation_config.json").string(), "object"));
  temporary.write("mlx/generation_config.json", R"({"eos_token_id": "</s>"})");
  EXPECT_THAT(refusal(), States("generation_config.json", "'eos_token_id'"));
  temporary.write("mlx/generation_config.json", "{}");
  temporary.write("mlx/config.json", R"({"text_config": 1})");
  EXPECT_THAT(refusal(), States("'text_config'"));
  temporary.write("mlx/config.json", "{");
  EXPECT_THAT(refusal(), States((temporary / "mlx/config.json").string()));
}

TEST(EndTokensOfAFamily, AreKnownForVocabulariesOfItsPublishedSizes) {
  EXPECT_THAT(family_end_tokens(Family::qwen3_5_moe, 248320), ElementsAre(TokenId(248046), TokenId(248044)));
  EXPECT_THAT(family_end_tokens(Family::deepseek_v3, 128815), ElementsAre(TokenId(1)));
  EXPECT_THAT(family_end_tokens(Family::deepseek_v3, 129280), ElementsAre(TokenId(1)));
  EXPECT_THAT(family_end_tokens(Family::qwen3_5_moe, 248319), IsEmpty());
  EXPECT_THAT(family_end_tokens(Family::qwen3_5_moe, 129280), IsEmpty());
  EXPECT_THAT(family_end_tokens(Family::deepseek_v3, 248320), IsEmpty());
}

struct EndTokensOfASource : EndTokens {
  OriginalArtifacts artifacts = original_of(tiny_qwen_mlx());

  std::vector<TokenId> of(std::string_view path) {
    const auto model = SourceModel::open(disk, temporary / path);
    EXPECT_TRUE(model) << model.error().message();
    return model ? model->config().end_tokens : std::vector<TokenId>{};
  }
};

TEST_F(EndTokensOfASource, WithoutTextFilesAreUnknownForAnUnpublishedVocabulary) {
  artifacts.write(temporary, "model/artifacts", "model/root");
  EXPECT_THAT(of("model"), IsEmpty());
}

TEST_F(EndTokensOfASource, OfTheOriginalAreItsConstantsForTheVocabularyOfItsModels) {
  const auto write = [&](TinyCheckpoint tiny, std::uint64_t vocabulary) {
    tiny.config["vocab_size"] = vocabulary;
    for (TestTensor& tensor : tiny.tensors)
      if (tensor.name.find("embed_tokens") != std::string::npos ||
          tensor.name.find("lm_head") != std::string::npos)
        tensor.shape[0] = vocabulary;
    original_of(tiny).write(temporary, "model/artifacts", "model/root");
  };
  write(tiny_qwen_mlx(), 248320);
  EXPECT_THAT(of("model"), ElementsAre(TokenId(248046), TokenId(248044)));
  // As a config.json without the list of generation_config.json: the end of a document only.
  temporary.write("model/mlx/config.json", R"({"text_config": {"eos_token_id": 248044}})");
  EXPECT_THAT(of("model"), ElementsAre(TokenId(248046), TokenId(248044)));
  temporary.write("model/mlx/config.json", R"({"eos_token_id": [248044, 7]})");
  EXPECT_THAT(of("model"), ElementsAre(TokenId(248044), TokenId(7), TokenId(248046)));
  std::filesystem::remove_all(temporary / "model");
  write(tiny_deepseek_mlx(), 128815);
  EXPECT_THAT(of("model"), ElementsAre(TokenId(1)));
}

TEST_F(EndTokensOfASource, OfTheOriginalAreInItsMlxFolderInEveryLayout) {
  artifacts.write(temporary, "parent/artifacts", "parent/root");
  artifacts.write(temporary, "flat", "flat");
  artifacts.write(temporary, "tiny-artifacts", "tiny-root");
  temporary.write("parent/mlx/config.json", R"({"text_config": {"eos_token_id": 95}})");
  temporary.write("parent/mlx/generation_config.json", R"({"eos_token_id": [3, 95]})");
  temporary.write("tiny-mlx-4bit/config.json", R"({"eos_token_id": 7})");
  temporary.write("flat/mlx/config.json", R"({"eos_token_id": 8})");
  for (const char* path : {"parent", "parent/artifacts", "parent/root", "parent/mlx"})
    EXPECT_THAT(of(path), ElementsAre(TokenId(3), TokenId(95))) << path;
  for (const char* path : {"tiny-artifacts", "tiny-root/", "tiny-mlx-4bit"})
    EXPECT_THAT(of(path), ElementsAre(TokenId(7))) << path;
  EXPECT_THAT(of("flat"), ElementsAre(TokenId(8)));
}

TEST_F(EndTokensOfASource, OfACheckpointIncludeThoseOfItsGenerationSettings) {
  const auto path = tiny_qwen_mlx().write(temporary, "mlx");
  EXPECT_THAT(of("mlx"), ElementsAre(TokenId(95)));
  temporary.write("mlx/generation_config.json", R"({"eos_token_id": [3, 95]})");
  EXPECT_THAT(of("mlx"), ElementsAre(TokenId(95), TokenId(3)));
}

}  // namespace
}  // namespace moeflux
