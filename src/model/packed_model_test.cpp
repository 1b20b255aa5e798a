#include "model/packed_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/testing/expect_contract.h"
#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "model/testing/tiny_packed_model.h"

namespace moeflux {
namespace {

using test::States;

struct PackedModels : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
  Manifest manifest = tiny_manifest(tiny_deepseek_config());
  std::filesystem::path path = write_packed_model(temporary, manifest);

  Error error() {
    auto model = PackedModel::open(files, path);
    return model ? Error{ErrorCode::cancelled, "no error"} : model.error();
  }
};

using APackedModel = PackedModels;

TEST_F(APackedModel, OpensWithTheContentsOfItsManifest) {
  const auto model = PackedModel::open(files, path);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->manifest(), manifest);
  EXPECT_EQ(model->config(), manifest.config);
  EXPECT_EQ(model->path(), path);
}

TEST_F(APackedModel, OpensWithoutReadingWeights) {
  ASSERT_TRUE(PackedModel::open(files, path));
  EXPECT_EQ(files.bytes(FileOperation::read), std::filesystem::file_size(path / "manifest.json"));
  for (const FileOperationRecord& record : files.log())
    if (record.operation == FileOperation::read) {
      EXPECT_EQ(record.path.filename(), "manifest.json");
    }
}

TEST_F(APackedModel, IsRecognizedByItsManifest) {
  EXPECT_TRUE(*PackedModel::is_at(files, path));
  std::filesystem::remove(path / "manifest.json");
  EXPECT_FALSE(*PackedModel::is_at(files, path));
  EXPECT_FALSE(*PackedModel::is_at(files, temporary / "nowhere"));
}

TEST_F(APackedModel, FindsTensorsByName) {
  const auto model = PackedModel::open(files, path);
  ASSERT_TRUE(model);
  for (const PackedTensor& tensor : manifest.tensors) {
    ASSERT_NE(model->find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(*model->find(tensor.name), tensor);
  }
  EXPECT_EQ(model->find("layers.0.mlp.gate"), nullptr);  // the dense layer
  EXPECT_EQ(model->find(""), nullptr);
}

TEST_F(APackedModel, FindsRecordsByLayerAndExpert) {
  const auto model = PackedModel::open(files, path);
  ASSERT_TRUE(model);
  const ExpertRecord& record = model->record({LayerId(1), ExpertId(3)});
  EXPECT_EQ(record, manifest.experts[0].records[3]);
  EXPECT_EQ(model->expert_format(record), manifest.expert_formats[0]);
  EXPECT_EQ(model->experts(LayerId(1)).file, "experts/layer_001.bin");
  EXPECT_EQ(model->expert_file(LayerId(1)).path(), path / "experts/layer_001.bin");
  EXPECT_EQ(model->resident_file().path(), path / "resident.bin");
}

TEST_F(APackedModel, RequiresALayerWithExperts) {
  const auto model = PackedModel::open(files, path);
  ASSERT_TRUE(model);
  EXPECT_CONTRACT((void)model->experts(LayerId(0)), "the layer has routed experts");
  EXPECT_CONTRACT((void)model->expert_file(LayerId(2)), "the layer has routed experts");
  EXPECT_CONTRACT((void)model->record({LayerId(1), ExpertId(4)}), "the expert is one of the layer");
}

TEST_F(APackedModel, NamesAFileOfWrongLengthAndBothLengths) {
  for (const char* name : {"resident.bin", "experts/layer_001.bin"})
    for (const int change : {-1, 1}) {
      const std::uint64_t right = std::filesystem::file_size(path / name);
      const std::uint64_t wrong = change < 0 ? right - 1 : right + 1;
      std::filesystem::resize_file(path / name, wrong);
      const Error refused = error();
      EXPECT_EQ(refused.code(), ErrorCode::corrupt_data);
      EXPECT_THAT(refused.message(), States((path / name).string(), right, wrong));
      std::filesystem::resize_file(path / name, right);
    }
  EXPECT_EQ(error().message(), "no error");
}

TEST_F(APackedModel, NamesAMissingFile) {
  for (const char* name :
       {"manifest.json", "resident.bin", "experts/layer_001.bin", "config.json", "tokenizer.json"}) {
    std::filesystem::rename(path / name, path / "elsewhere");
    const Error refused = error();
    EXPECT_EQ(refused.code(), ErrorCode::not_found) << refused.message();
    EXPECT_THAT(refused.message(), States((path / name).string()));
    std::filesystem::rename(path / "elsewhere", path / name);
  }
}

TEST_F(APackedModel, NamesThePathOfADamagedManifest) {
  temporary.write("model/manifest.json", "{}");
  EXPECT_THAT(error().message(), States((path / "manifest.json").string(), "'format'", "missing"));
}

TEST_F(APackedModel, FailsIfAnyDiskOperationFails) {
  ASSERT_TRUE(PackedModel::open(files, path));
  const std::uint64_t count = files.log().size();
  EXPECT_GT(count, 6u);
  for (std::uint64_t i = 0; i < count; ++i) {
    files.set_plan({.faults = {{.index = i}}});
    const Error failed = error();
    EXPECT_EQ(failed.code(), ErrorCode::io_failed) << "operation " << i;
    EXPECT_THAT(failed.message(), States(path.string())) << "operation " << i;
  }
}

TEST_F(APackedModel, SummaryExcludesPadding) {
  const auto model = PackedModel::open(files, path);
  ASSERT_TRUE(model);
  const ModelSummary summary = model->summarise();
  // 8 bits: 64 x 64 codes and one (bias, scale) pair of BF16 per row.
  const std::uint64_t matrix = 64 * 64 + 64 * 4;
  EXPECT_EQ(summary.largest_expert_bytes, 3 * matrix);
  EXPECT_EQ(summary.smallest_expert_bytes, 3 * matrix);
  EXPECT_EQ(summary.experts, 4u);
  EXPECT_EQ(summary.expert_bytes, 4 * 3 * matrix);
  EXPECT_EQ(summary.token_expert_bytes, 2 * 3 * matrix);
  ASSERT_EQ(summary.expert_encodings.size(), 1u);
  EXPECT_EQ(summary.expert_encodings[0].encoding, "affine 8-bit group 64");
  EXPECT_EQ(summary.expert_encodings[0].matrices, 12u);
  EXPECT_EQ(summary.expert_encodings[0].bytes, summary.expert_bytes);
  EXPECT_EQ(summary.files, 2u);
  EXPECT_EQ(summary.file_bytes, manifest.resident_bytes + manifest.experts[0].bytes);
  EXPECT_EQ(summary.path, path.string());
  EXPECT_EQ(summary.format, "packed model, tile16 (from MLX safetensors)");
  std::uint64_t resident = 0;
  for (const PackedTensor& tensor : manifest.tensors) resident += tensor.bytes;
  EXPECT_EQ(summary.resident_bytes, resident);
}

}  // namespace
}  // namespace moeflux
