#include "library/originals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/testing/original_builder.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;

struct PackingOriginals : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};

  PackingOriginals() { original_of(tiny_qwen_mlx()).write(temporary, "model/artifacts", "model/root"); }

  Result<PackedOriginals> pack() {
    return pack_originals(
        files, {temporary / "model/artifacts/model_weights.bin",
                temporary / "model/artifacts/model_weights.json", temporary / "model/root", false});
  }

  std::size_t manifests_opened() const {
    std::size_t count = 0;
    for (const FileOperationRecord& record : files.log())
      if (record.operation == FileOperation::open_read && record.path.filename() == kManifestName) ++count;
    return count;
  }
};

TEST_F(PackingOriginals, PutsThePackedModelBesideTheExperts) {
  const auto packed = pack();
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_EQ(packed->model.path(), temporary / "model/root" / kPackedOriginals);
  EXPECT_EQ(packed->name, "model");
}

TEST_F(PackingOriginals, OpensAFinishedPackOnceAndWritesNothing) {
  ASSERT_TRUE(pack());
  files.clear_log();
  const auto packed = pack();
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_EQ(packed->model.path(), temporary / "model/root" / kPackedOriginals);
  EXPECT_EQ(manifests_opened(), 1u);
  EXPECT_EQ(files.count(FileOperation::create), 0u);
}

TEST_F(PackingOriginals, UsesAFinishedPackWhoseTextFilesAreGone) {
  temporary.write("model/mlx/config.json", R"({"eos_token_id": 95})");
  ASSERT_TRUE(pack());
  std::filesystem::remove_all(temporary / "model/mlx");
  const auto packed = pack();
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_THAT(packed->model.config().end_tokens, ElementsAre(TokenId(95)));
}

TEST_F(PackingOriginals, RefusesAFinishedPackThatLacksTheEndTokens) {
  ASSERT_TRUE(pack());
  temporary.write("model/mlx/config.json", R"({"eos_token_id": 95})");
  const auto packed = pack();
  ASSERT_FALSE(packed);
  EXPECT_THAT(packed, States((temporary / "model/root" / kPackedOriginals).string(), "end tokens", 1));
}

TEST_F(PackingOriginals, CopiesTheTextFilesOfEveryLayout) {
  temporary.write("model/mlx/tokenizer.json", "{}");
  auto packed = pack();
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_THAT(packed->model.manifest().text_files, ElementsAre("tokenizer.json"));

  original_of(tiny_qwen_mlx()).write(temporary, "tiny-artifacts", "tiny-root");
  temporary.write("tiny-mlx-4bit/tokenizer.json", "{}");
  temporary.write("tiny-mlx-4bit/generation_config.json", R"({"eos_token_id": 3})");
  packed = pack_originals(
      files, {temporary / "tiny-artifacts/model_weights.bin", temporary / "tiny-artifacts/model_weights.json",
              temporary / "tiny-root", false});
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_THAT(packed->model.manifest().text_files, ElementsAre("generation_config.json", "tokenizer.json"));
  EXPECT_THAT(packed->model.config().end_tokens, ElementsAre(TokenId(3)));
}

}  // namespace
}  // namespace moeflux
