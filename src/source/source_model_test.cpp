// Opening the checkpoints of the repository, and refusing what is not a model.

#include "source/source_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/testing/states.h"
#include "io/posix_file_system.h"
#include "io/testing/faulty_file_system.h"
#include "io/testing/temporary_directory.h"
#include "source/testing/goldens.h"
#include "source/testing/original_builder.h"

namespace moeflux {
namespace {

using test::States;

namespace fs = std::filesystem;
using testing::IsEmpty;

struct Known {
  const char* name;  // of a golden, or "tern"
  SourceKind kind;
  Family family;
  std::size_t layers;
  std::uint64_t experts;  // of all layers
  std::uint64_t expert_bytes;
  std::vector<std::string> resident_encodings;
  fs::path path() const { return std::string(name) == "tern" ? tern() : golden(name); }
};
void PrintTo(const Known& known, std::ostream* out) { *out << known.name; }

constexpr auto kMlx = SourceKind::mlx_safetensors;
constexpr auto kHuggingFace = SourceKind::hugging_face_safetensors;

const std::vector<Known>& known_models() {
  const std::vector<std::string> qwen_mlx{"affine 4-bit group 64", "affine 8-bit group 64", "bf16", "f32"};
  const std::vector<std::string> deepseek_mlx{"affine 4-bit group 64", "bf16", "f32"};
  static const std::vector<Known> models{
      {"qwen35moe-tiny-bf16", kHuggingFace, Family::qwen3_5_moe, 8, 64, 49152, {"bf16", "f32"}},
      {"qwen35moe-tiny-mlx4", kMlx, Family::qwen3_5_moe, 8, 64, 13824, qwen_mlx},
      {"qwen35moe-long-mlx4", kMlx, Family::qwen3_5_moe, 4, 32, 13824, qwen_mlx},
      {"deepseekv3-tiny-bf16", kHuggingFace, Family::deepseek_v3, 4, 48, 49152, {"bf16", "f32"}},
      {"deepseekv3-tiny-fp8",
       kHuggingFace,
       Family::deepseek_v3,
       4,
       48,
       24588,
       {"bf16", "fp8 e4m3 128x128 (F32 scales)", "f32"}},
      {"deepseekv3-tiny-mlx4", kMlx, Family::deepseek_v3, 4, 48, 13824, deepseek_mlx},
      {"deepseekv3-long-mlx4", kMlx, Family::deepseek_v3, 3, 32, 13824, deepseek_mlx},
      {"tern", kMlx, Family::qwen3_5_moe, 8, 512, 55296, qwen_mlx},
  };
  return models;
}

// Bytes over all safetensors files of the model: `headers` counts the length field and the JSON, `data` the
// rest.
struct FileBytes {
  std::uint64_t headers = 0, data = 0;
};
FileBytes measure(const fs::path& directory) {
  FileBytes bytes;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    std::uint64_t json = 0;
    std::ifstream(entry.path(), std::ios::binary).read(reinterpret_cast<char*>(&json), 8);
    bytes.headers += 8 + json;
    bytes.data += entry.file_size() - 8 - json;
  }
  return bytes;
}

class KnownModel : public testing::TestWithParam<Known> {
 protected:
  PosixFileSystem disk;
  FaultyFileSystem files{disk};
};

TEST_P(KnownModel, OpensAsWhatItIs) {
  const Known& known = GetParam();
  const auto model = SourceModel::open(files, known.path());
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->kind(), known.kind);
  EXPECT_EQ(model->config().family, known.family);
  EXPECT_EQ(model->config().layers.size(), known.layers);
  EXPECT_THAT(model->notes(), IsEmpty());
  const auto summary = model->summarise();
  ASSERT_TRUE(summary) << summary.error().message();
  EXPECT_EQ(summary->experts, known.experts);
  EXPECT_EQ(summary->smallest_expert_bytes, known.expert_bytes);
  EXPECT_EQ(summary->largest_expert_bytes, known.expert_bytes);
  std::vector<std::string> encodings;
  for (const EncodingUse& use : summary->resident_encodings) encodings.push_back(use.encoding);
  EXPECT_THAT(encodings, testing::UnorderedElementsAreArray(known.resident_encodings));
}

TEST_P(KnownModel, AccountsForEveryByteOfItsFiles) {
  const auto model = SourceModel::open(files, GetParam().path());
  ASSERT_TRUE(model) << model.error().message();
  const auto summary = model->summarise();
  ASSERT_TRUE(summary);
  const FileBytes bytes = measure(GetParam().path());
  EXPECT_EQ(summary->resident_bytes + summary->expert_bytes + summary->skipped_bytes, bytes.data);
  EXPECT_EQ(summary->file_bytes, bytes.headers + bytes.data);
  EXPECT_EQ(summary->expert_bytes, summary->experts * GetParam().expert_bytes);
  std::uint64_t in_encodings = 0;
  for (const auto* uses : {&summary->resident_encodings, &summary->expert_encodings})
    for (const EncodingUse& use : *uses) in_encodings += use.bytes;
  EXPECT_EQ(in_encodings, summary->resident_bytes + summary->expert_bytes);
}

TEST_P(KnownModel, GivesNoByteToTwoMatrices) {
  const auto model = SourceModel::open(files, GetParam().path());
  ASSERT_TRUE(model) << model.error().message();
  struct Place {
    std::uint32_t file;
    std::uint64_t begin, end;
    auto operator<=>(const Place&) const = default;
  };
  std::vector<Place> places;
  const auto add = [&](const SourceMatrix& matrix) {
    EXPECT_EQ(encoded_bytes(matrix.encoding, matrix.rows, matrix.cols),
              (EncodedBytes{matrix.codes.size, matrix.scales.size, matrix.biases.size}));
    for (const ByteRange* range : {&matrix.codes, &matrix.scales, &matrix.biases})
      if (range->size > 0)
        places.push_back({range->file.index(), range->offset, range->offset + range->size});
  };
  for (const NamedMatrix& named : model->resident()) add(named.matrix);
  for (std::uint32_t layer = 0; layer < model->config().layers.size(); ++layer) {
    const SourceExperts* experts = model->experts(LayerId(layer));
    for (std::uint32_t e = 0; experts != nullptr && e < experts->count(); ++e) {
      const ExpertMatrices expert = experts->expert(ExpertId(e));
      for (const SourceMatrix* matrix : {&expert.gate, &expert.up, &expert.down}) add(*matrix);
    }
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i)
    EXPECT_TRUE(places[i].file != places[i - 1].file || places[i - 1].end <= places[i].begin);
}

TEST_P(KnownModel, ReadsNoWeightsToOpen) {
  const Known& known = GetParam();
  ASSERT_TRUE(SourceModel::open(files, known.path()));
  std::uint64_t expected = measure(known.path()).headers + fs::file_size(known.path() / "config.json");
  if (fs::exists(known.path() / "generation_config.json"))
    expected += fs::file_size(known.path() / "generation_config.json");
  const fs::path index = known.path() / "model.safetensors.index.json";
  if (fs::exists(index)) expected += 2 * fs::file_size(index);  // once for its shards, once after
  EXPECT_EQ(files.bytes(FileOperation::read), expected);
}

TEST_P(KnownModel, AddsOneToTheNormsThatHuggingFaceStoresWithoutIt) {
  const Known& known = GetParam();
  const auto model = SourceModel::open(files, known.path());
  ASSERT_TRUE(model) << model.error().message();
  std::set<std::string> kinds;
  std::size_t raised = 0, norms = 0;
  for (const NamedMatrix& named : model->resident()) {
    const std::string kind = named.name.substr(named.name.rfind('.') + 1);
    const bool gated_norm = named.name.ends_with("linear_attn.norm");
    norms += kind.ends_with("norm") && !gated_norm ? 1 : 0;
    if (!named.matrix.add_one) continue;
    ++raised;
    kinds.insert(kind);
    EXPECT_FALSE(gated_norm) << named.name;
  }
  const bool hugging_face_qwen = known.kind == kHuggingFace && known.family == Family::qwen3_5_moe;
  EXPECT_EQ(raised, hugging_face_qwen ? norms : 0);
  const std::set<std::string> five{"input_layernorm", "k_norm", "norm", "post_attention_layernorm", "q_norm"};
  EXPECT_EQ(kinds, hugging_face_qwen ? five : std::set<std::string>{});
}

TEST_P(KnownModel, OpensThroughItsFiles) {
  std::vector<std::string> names{"config.json"};
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json", "model-00002-of-00003.safetensors"})
    if (fs::exists(GetParam().path() / name)) names.emplace_back(name);
  EXPECT_GE(names.size(), 2u);
  for (const std::string& name : names) {
    const auto model = SourceModel::open(files, GetParam().path() / name);
    ASSERT_TRUE(model) << name << ": " << model.error().message();
    EXPECT_EQ(model->path(), GetParam().path());
  }
}

INSTANTIATE_TEST_SUITE_P(, KnownModel, testing::ValuesIn(known_models()), [](const auto& param_info) {
  std::string name = param_info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

struct NotAModel : testing::Test {
  TemporaryDirectory temporary;
  PosixFileSystem disk;

  Error refusal(std::string_view name) {
    const fs::path path = temporary / name;
    const auto model = SourceModel::open(disk, path);
    EXPECT_FALSE(model) << name;
    if (model) return {ErrorCode::cancelled, "opened"};
    EXPECT_THAT(model.error().message(), States(path.string()));
    return model.error();
  }
};

TEST_F(NotAModel, NowhereIsNotFound) { EXPECT_EQ(refusal("nowhere").code(), ErrorCode::not_found); }

TEST_F(NotAModel, EmptyFolderNamesTheExpectedFiles) {
  fs::create_directory(temporary / "empty");
  const Error error = refusal("empty");
  EXPECT_EQ(error.code(), ErrorCode::not_found);
  EXPECT_THAT(error.message(), States("config.json", "model.safetensors"));
}

TEST_F(NotAModel, WeightsWithoutAConfigNameTheMissingFile) {
  temporary.write("m/model.safetensors", "x");
  EXPECT_THAT(refusal("m").message(), States("config.json"));
}

TEST_F(NotAModel, GgufIsRejectedByFolderSuffixAndMagic) {
  temporary.write("m/model.gguf", "x");
  temporary.write("m/model.bin", "GGUF....");
  for (const char* path : {"m", "m/model.gguf", "m/model.bin"}) {
    const Error error = refusal(path);
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.message(), States("GGUF"));
  }
  temporary.write("m/config.json", tiny_qwen_mlx().config.dump());
  EXPECT_THAT(refusal("m").message(), States("GGUF"));
}

TEST_F(NotAModel, PickleIsRejectedByName) {
  temporary.write("m/pytorch_model.bin", "x");
  EXPECT_THAT(refusal("m").message(), States((temporary / "m").string(), "PyTorch"));
}

TEST_F(NotAModel, PackedModelIsRejectedByName) {
  temporary.write("m/manifest.json", "{}");
  temporary.write("m/resident.bin", "");
  const Error error = refusal("m");
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.message(), States("packed model"));
  EXPECT_THAT(SourceModel::open(disk, temporary / "m/manifest.json"),
              States((temporary / "m").string(), "packed model"));
  temporary.write("m/config.json", tiny_qwen_mlx().config.dump());  // a copy is part of every packed model
  EXPECT_THAT(refusal("m").message(), States("packed model"));
}

TEST_F(NotAModel, OtherFileIsRejected) {
  temporary.write("notes.txt", "hello");
  EXPECT_THAT(refusal("notes.txt").message(), States("config.json"));
}

TEST_F(NotAModel, ConfigWithoutWeightsNamesTheMissingFile) {
  temporary.write("m/config.json", tiny_qwen_mlx().config.dump());
  EXPECT_THAT(refusal("m").message(), States("model.safetensors"));
}

TEST_F(NotAModel, InvalidConfigIsRejectedWithLineAndColumn) {
  temporary.write("m/model.safetensors", "x");
  temporary.write("m/config.json", "{\"a\": 1,\n \"a\": 2}");
  EXPECT_THAT(refusal("m").message(), States("config.json", 2));
}

TEST_F(NotAModel, ButACheckpointBesideAFileNamedArtifactsIsOne) {
  tiny_qwen_mlx().write(temporary, "m");
  temporary.write("m/artifacts", "not a folder");
  const auto model = SourceModel::open(disk, temporary / "m");
  EXPECT_TRUE(model) << model.error().message();
}

TEST_F(NotAModel, ButACheckpointBesideItsOldArtifactsIsOne) {
  tiny_qwen_mlx().write(temporary, "tiny-mlx-4bit");
  original_of(tiny_qwen_mlx()).write(temporary, "tiny-artifacts", "tiny-root");
  const auto model = SourceModel::open(disk, temporary / "tiny-mlx-4bit");
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->kind(), SourceKind::mlx_safetensors);
}

TEST(SourceKindNames, AreThoseThatInspectPrints) {
  EXPECT_EQ(name_of(SourceKind::mlx_safetensors), "MLX safetensors");
  EXPECT_EQ(name_of(SourceKind::hugging_face_safetensors), "Hugging Face safetensors");
  EXPECT_EQ(name_of(SourceKind::original_artifacts), "original artifacts");
  EXPECT_EQ(expert_matrix_name({LayerId(3), ExpertId(17)}, "gate_proj"), "layers.3.mlp.experts.17.gate_proj");
}

}  // namespace
}  // namespace moeflux
