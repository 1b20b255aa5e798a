#include "source/original.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/matrix_reader.h"
#include "source/source_model.h"
#include "source/testing/original_builder.h"

namespace moeflux {
namespace {

using test::States;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

// All numbers of a matrix.
std::vector<float> numbers_of(const SourceModel& model, const SourceMatrix& matrix) {
  std::vector<float> numbers;
  const Status status =
      decode_rows(model.catalog(), matrix, "m", [&](std::uint64_t, std::span<const float> row) -> Status {
        numbers.insert(numbers.end(), row.begin(), row.end());
        return {};
      });
  EXPECT_TRUE(status) << status.error().message();
  return numbers;
}

struct Original : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  OriginalArtifacts artifacts = original_of(tiny_qwen_mlx());

  Result<SourceModel> open(std::string_view name = "model") {
    return SourceModel::open(disk, temporary / name);
  }
  Result<SourceModel> written() {
    artifacts.write(temporary, "model/artifacts", "model/root");
    return open();
  }
  std::string refusal() {
    const auto model = written();
    return model ? "no error" : model.error().message();
  }
};
using OriginalArtifactsOnDisk = Original;

TEST_F(OriginalArtifactsOnDisk, HoldTheSameNumbersAsTheCheckpointTheyCameFrom) {
  const auto original = written();
  ASSERT_TRUE(original) << original.error().message();
  const auto mlx = SourceModel::open(disk, tiny_qwen_mlx().write(temporary, "mlx"));
  ASSERT_TRUE(mlx) << mlx.error().message();
  EXPECT_EQ(original->kind(), SourceKind::original_artifacts);
  ASSERT_EQ(original->resident().size(), mlx->resident().size());
  for (std::size_t i = 0; i < mlx->resident().size(); ++i) {
    const NamedMatrix &a = original->resident()[i], &b = mlx->resident()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.matrix.encoding, b.matrix.encoding) << a.name;
    EXPECT_EQ(numbers_of(*original, a.matrix), numbers_of(*mlx, b.matrix)) << a.name;
  }
  for (std::uint32_t layer = 0; layer < 2; ++layer)
    for (std::uint32_t e = 0; e < 4; ++e) {
      const auto a = original->experts(LayerId(layer))->expert(ExpertId(e));
      const auto b = mlx->experts(LayerId(layer))->expert(ExpertId(e));
      EXPECT_EQ(numbers_of(*original, a.gate), numbers_of(*mlx, b.gate));
      EXPECT_EQ(numbers_of(*original, a.up), numbers_of(*mlx, b.up));
      EXPECT_EQ(numbers_of(*original, a.down), numbers_of(*mlx, b.down));
    }
}

TEST_F(OriginalArtifactsOnDisk, NoteTheAssumedContext) {
  const auto model = written();
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->config().max_positions, 1048576u);
  EXPECT_THAT(model->notes(), ElementsAre(States("'max_position_embeddings'", 1048576)));
}

TEST_F(OriginalArtifactsOnDisk, MayBeOfTheOtherFamily) {
  artifacts = original_of(tiny_deepseek_mlx());
  const auto model = written();
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->config().family, Family::deepseek_v3);
  EXPECT_EQ(model->experts(LayerId(0)), nullptr);
  const auto& moe = std::get<MoeConfig>(model->config().layers[1].mlp);
  EXPECT_TRUE(std::get<GroupedSigmoidRouterConfig>(moe.router).normalise);
}

TEST_F(OriginalArtifactsOnDisk, MayHaveExpertsOfTwoBits) {
  artifacts.experts_folder = "packed_experts_2bit";
  const std::uint64_t expert = 3 * encoded_bytes(AffineFormat{2, 64, Dtype::bf16}, 64, 64).total();
  artifacts.layers = {std::string(4 * expert, '\1'), std::string(4 * expert, '\2')};
  const auto model = written();
  ASSERT_TRUE(model) << model.error().message();
  const ExpertMatrices third = model->experts(LayerId(1))->expert(ExpertId(3));
  EXPECT_EQ(third.gate.encoding, Encoding(AffineFormat{2, 64, Dtype::bf16}));
  EXPECT_EQ(third.gate.codes.offset, 3 * expert);
  EXPECT_EQ(third.down.biases.offset + third.down.biases.size, 4 * expert);
}

TEST_F(OriginalArtifactsOnDisk, PreferFourBitExpertsWithANote) {
  temporary.write("model/root/packed_experts_2bit/layer_00.bin", "");
  const auto model = written();
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_THAT(model->notes(), Contains(States(4, 2)));
}

TEST_F(OriginalArtifactsOnDisk, LetTheCallerChooseBetweenFourAndTwoBits) {
  artifacts.write(temporary, "model/artifacts", "model/root");
  const auto open_2bit = [&] { return SourceModel::open(disk, temporary / "model", {.use_2bit = true}); };
  const auto missing = open_2bit();
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::not_found);
  EXPECT_THAT(missing, States((temporary / "model/root").string(), "packed_experts_2bit"));

  artifacts.experts_folder = "packed_experts_2bit";
  const std::uint64_t expert = 3 * encoded_bytes(AffineFormat{2, 64, Dtype::bf16}, 64, 64).total();
  artifacts.layers = {std::string(4 * expert, '\1'), std::string(4 * expert, '\2')};
  artifacts.write(temporary, "model/artifacts", "model/root");
  for (const std::uint32_t bits : {4u, 2u}) {
    const auto model = bits == 2 ? open_2bit() : open();
    ASSERT_TRUE(model) << model.error().message();
    const ExpertMatrices first = model->experts(LayerId(0))->expert(ExpertId(0));
    EXPECT_EQ(first.gate.encoding, Encoding(AffineFormat{bits, 64, Dtype::bf16}));
    EXPECT_THAT(model->notes(), Contains(States("4-bit", "2-bit", fmt::format("the {}-bit ones", bits))));
  }
}

TEST_F(OriginalArtifactsOnDisk, AloneHaveAChoiceOfBits) {
  const auto path = tiny_qwen_mlx().write(temporary, "mlx");
  const auto model = SourceModel::open(disk, path, {.use_2bit = true});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), ErrorCode::invalid_argument);
  EXPECT_THAT(model, States(path.string(), "MLX safetensors"));
}

TEST_F(OriginalArtifactsOnDisk, WithoutExpertsNameTheExpectedFolders) {
  artifacts.layers.clear();
  EXPECT_THAT(refusal(), States((temporary / "model" / "root").string(), "packed_experts"));
  temporary.write("model/root/packed_experts_lz4/layer_00.bin", "");
  EXPECT_THAT(refusal(), States("LZ4"));
}

TEST_F(OriginalArtifactsOnDisk, NameTheExpectedSizeOfALayer) {
  artifacts.layers[1].pop_back();
  EXPECT_THAT(refusal(), States("layer_01.bin", 4, 6912, 27648, 27647));
  artifacts.layers[1] += "xx";
  EXPECT_THAT(refusal(), States(27648, 27649));
  std::filesystem::remove(temporary / "model/root/packed_experts/layer_01.bin");
  EXPECT_THAT([&] { return open().error().message(); }(), States("layer_01.bin"));
}

TEST_F(OriginalArtifactsOnDisk, AreFoundInEveryLayoutOfFolders) {
  artifacts.write(temporary, "parent/artifacts", "parent/root");
  artifacts.write(temporary, "flat", "flat");
  artifacts.write(temporary, "tiny-artifacts", "tiny-root");
  temporary.write("tiny-mlx-4bit/config.json", "{}");
  for (const char* path : {"parent", "parent/", "flat", "flat/model_weights.json", "flat/model_weights.bin",
                           "tiny-artifacts", "tiny-root", "tiny-root/", "tiny-mlx-4bit"}) {
    const auto model = open(path);
    EXPECT_TRUE(model) << path << ": " << model.error().message();
  }
}

TEST_F(OriginalArtifactsOnDisk, InOneFolderMayHaveTheNameOfASibling) {
  for (const char* name : {"tiny-artifacts", "tiny-root", "tiny-mlx-4bit"}) {
    artifacts.write(temporary, name, name);
    const auto model = open(name);
    EXPECT_TRUE(model) << name << ": " << model.error().message();
    std::filesystem::remove_all(temporary / name);
  }
}

TEST_F(OriginalArtifactsOnDisk, AreNotFoundInOtherFolders) {
  std::filesystem::create_directory(temporary / "empty-root");
  const auto paths = find_original(disk, temporary / "empty-root");
  ASSERT_TRUE(paths);
  EXPECT_FALSE(*paths);
}

// Offsets of the nine parts of the first expert, as published for each model.
struct Published {
  const char* name;
  std::uint32_t bits;
  ExpertDims dims;
  std::uint64_t expert_bytes;
  std::vector<std::uint64_t> offsets;
};
void PrintTo(const Published& model, std::ostream* out) { *out << model.name; }

class PublishedLayer : public testing::TestWithParam<Published> {};

TEST_P(PublishedLayer, HasTheOriginalOrderOfParts) {
  const Published& model = GetParam();
  TemporaryDirectory temporary;
  PosixFileSystem disk;
  const std::string folder = model.bits == 4 ? "packed_experts" : "packed_experts_2bit";
  const auto path = temporary.write(folder + "/layer_07.bin", "");
  std::filesystem::resize_file(path, model.dims.experts.size * model.expert_bytes);  // a hole

  TensorCatalog catalog;
  Notes notes;
  auto locator = OriginalExperts::find(disk, catalog, temporary.path(), false, notes);
  ASSERT_TRUE(locator) << locator.error().message();
  EXPECT_EQ(locator->bits(), model.bits);
  const auto experts = locator->locate(LayerId(7), "", model.dims);
  ASSERT_TRUE(experts) << experts.error().message();
  for (const std::uint32_t e : {0u, 1u, experts->count() - 1}) {
    const ExpertMatrices expert = experts->expert(ExpertId(e));
    EXPECT_EQ(expert.total_bytes(), model.expert_bytes);
    std::vector<std::uint64_t> offsets;
    for (const SourceMatrix* matrix : {&expert.gate, &expert.up, &expert.down})
      for (const ByteRange* part : {&matrix->codes, &matrix->scales, &matrix->biases})
        offsets.push_back(part->offset - e * model.expert_bytes);
    EXPECT_EQ(offsets, model.offsets);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , PublishedLayer,
    testing::Values(Published{"A17B4",
                              4,
                              {{512, ""}, {1024, ""}, {4096, ""}},
                              7077888,
                              {0, 2097152, 2228224, 2359296, 4456448, 4587520, 4718592, 6815744, 6946816}},
                    Published{"A17B2",
                              2,
                              {{512, ""}, {1024, ""}, {4096, ""}},
                              3932160,
                              {0, 1048576, 1179648, 1310720, 2359296, 2490368, 2621440, 3670016, 3801088}},
                    Published{"A3B4",
                              4,
                              {{256, ""}, {512, ""}, {2048, ""}},
                              1769472,
                              {0, 524288, 557056, 589824, 1114112, 1146880, 1179648, 1703936, 1736704}},
                    Published{"A3B2",
                              2,
                              {{256, ""}, {512, ""}, {2048, ""}},
                              983040,
                              {0, 262144, 294912, 327680, 589824, 622592, 655360, 917504, 950272}},
                    Published{
                        "Cogito4",
                        4,
                        {{256, ""}, {2048, ""}, {7168, ""}},
                        24772608,
                        {0, 7340032, 7798784, 8257536, 15597568, 16056320, 16515072, 23855104, 24313856}}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace moeflux
