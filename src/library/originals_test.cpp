#include "library/originals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/original.h"
#include "source/testing/original_builder.h"

namespace moeflux {
namespace {

using test::States;
using testing::ElementsAre;

struct PackingOriginals : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  std::vector<PackProgress> reports;  // of the last call
  std::size_t cancel_at = 0;          // a number of reports; 0: never
  std::atomic<bool> cancel = false;

  PackingOriginals() { original_of(tiny_qwen_mlx()).write(temporary, "model/artifacts", "model/root"); }

  Result<PackedOriginals> pack_into(const std::string& artifacts, const std::string& root, bool use_2bit) {
    reports.clear();
    return pack_originals(
        files,
        {temporary / artifacts / "model_weights.bin", temporary / artifacts / "model_weights.json",
         temporary / root, use_2bit},
        [&](const PackProgress& progress) {
          reports.push_back(progress);
          if (reports.size() == cancel_at) cancel = true;
        },
        &cancel);
  }
  Result<PackedOriginals> pack(bool use_2bit = false) {
    return pack_into("model/artifacts", "model/root", use_2bit);
  }
  void write_2bit_experts() {
    OriginalArtifacts two_bit = original_of(tiny_qwen_mlx());
    const std::uint64_t expert = 3 * encoded_bytes(AffineFormat{2, 64, Dtype::bf16}, 64, 64).total();
    two_bit.experts_folder = kPackedExperts2bit;
    two_bit.layers = {std::string(4 * expert, '\1'), std::string(4 * expert, '\2')};
    two_bit.write(temporary, "model/artifacts", "model/root");
  }
  static std::uint32_t bits_of(const PackedModel& model) {
    return std::get<AffineFormat>(model.manifest().expert_formats.at(0).gate.encoding).bits;
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
  packed = pack_into("tiny-artifacts", "tiny-root", false);
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_THAT(packed->model.manifest().text_files, ElementsAre("generation_config.json", "tokenizer.json"));
  EXPECT_THAT(packed->model.config().end_tokens, ElementsAre(TokenId(3)));
}

TEST_F(PackingOriginals, KeepsOnePackedModelForEachChoiceOfExperts) {
  write_2bit_experts();
  for (int time = 0; time < 2; ++time) {
    const auto four = pack(), two = pack(true);
    ASSERT_TRUE(four) << four.error().message();
    ASSERT_TRUE(two) << two.error().message();
    EXPECT_EQ(four->model.path(), temporary / "model/root" / kPackedOriginals);
    EXPECT_EQ(two->model.path(), temporary / "model/root" / kPackedOriginals2bit);
    EXPECT_EQ(bits_of(four->model), 4u);
    EXPECT_EQ(bits_of(two->model), 2u);
  }
}

TEST_F(PackingOriginals, TakesTwoBitExpertsIfThereAreNoOthers) {
  write_2bit_experts();
  std::filesystem::remove_all(temporary / "model/root" / kPackedExperts);
  const auto packed = pack();
  ASSERT_TRUE(packed) << packed.error().message();
  EXPECT_EQ(packed->model.path(), temporary / "model/root" / kPackedOriginals2bit);
}

TEST_F(PackingOriginals, WithoutTwoBitExpertsCannotChooseThem) {
  const auto packed = pack(true);
  ASSERT_FALSE(packed);
  EXPECT_EQ(packed.error().code(), ErrorCode::not_found);
  EXPECT_THAT(packed, States((temporary / "model/root").string(), kPackedExperts2bit));
}

TEST_F(PackingOriginals, ReportsItsProgressOnce) {
  ASSERT_TRUE(pack());
  ASSERT_FALSE(reports.empty());
  for (std::size_t i = 1; i < reports.size(); ++i)
    EXPECT_GT(reports[i].done_bytes, reports[i - 1].done_bytes);
  EXPECT_EQ(reports.back().done_bytes, reports.back().total_bytes);
  ASSERT_TRUE(pack());
  EXPECT_TRUE(reports.empty());
}

TEST_F(PackingOriginals, CanBeCancelledAndContinued) {
  const std::filesystem::path destination = temporary / "model/root" / kPackedOriginals;
  for (cancel_at = 1; cancel_at <= 3; ++cancel_at) {
    std::filesystem::remove_all(destination);
    const auto cancelled = pack();
    ASSERT_FALSE(cancelled);
    EXPECT_EQ(cancelled.error().code(), ErrorCode::cancelled);
    EXPECT_FALSE(*PackedModel::is_at(disk, destination));
    cancel = false;
    const std::size_t at = std::exchange(cancel_at, 0);
    const auto packed = pack();
    ASSERT_TRUE(packed) << packed.error().message();
    EXPECT_EQ(reports.back().done_bytes, reports.back().total_bytes);
    cancel_at = at;
  }
}

TEST_F(PackingOriginals, InTwoThreadsHappensOnce) {
  std::array<std::uint64_t, 2> packed_bytes{};
  const auto open = [&](std::size_t which) {
    PosixFileSystem own_disk;
    const auto packed = pack_originals(
        own_disk,
        {temporary / "model/artifacts/model_weights.bin", temporary / "model/artifacts/model_weights.json",
         temporary / "model/root", false},
        [&](const PackProgress& progress) { packed_bytes[which] = progress.done_bytes; }, nullptr);
    EXPECT_TRUE(packed) << packed.error().message();
  };
  std::thread other(open, 1);
  open(0);
  other.join();
  EXPECT_TRUE((packed_bytes[0] == 0) != (packed_bytes[1] == 0));
}

TEST_F(PackingOriginals, DoesNotBeginIfItIsCancelledBefore) {
  cancel = true;
  const auto cancelled = pack();
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code(), ErrorCode::cancelled);
  EXPECT_FALSE(std::filesystem::exists(temporary / "model/root" / kPackedOriginals));
}

}  // namespace
}  // namespace moeflux
