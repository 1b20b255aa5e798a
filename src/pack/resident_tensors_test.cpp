// A packed model must have the same tensors as a source of the same config.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "io/posix_file_system.h"
#include "io/testing/temporary_directory.h"
#include "model/packed_format.h"
#include "source/source_model.h"
#include "source/testing/goldens.h"
#include "source/testing/tiny_models.h"

namespace moeflux {
namespace {

using Shapes = std::map<std::string, std::pair<std::uint64_t, std::uint64_t>>;

SourceModel open(const std::filesystem::path& path) {
  PosixFileSystem disk;
  auto model = SourceModel::open(disk, path);
  EXPECT_TRUE(model) << model.error().message();
  return *std::move(model);
}

Shapes shapes_of(const SourceModel& model) {
  Shapes shapes;
  for (const NamedMatrix& named : model.resident()) {
    const bool is_new = shapes.insert({named.name, {named.matrix.rows, named.matrix.cols}}).second;
    EXPECT_TRUE(is_new) << named.name << " is there twice";
  }
  return shapes;
}

Shapes packed_shapes(const ModelConfig& config, bool split_kv_b) {
  Shapes shapes;
  for (const TensorShape& tensor : resident_tensors(config, split_kv_b)) {
    const bool is_new = shapes.insert({tensor.name, {tensor.rows, tensor.cols}}).second;
    EXPECT_TRUE(is_new) << tensor.name << " is there twice";
  }
  return shapes;
}

class ResidentTensorsOf : public testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path path() const {
    return GetParam() == std::string("tern") ? tern() : golden(GetParam());
  }
};

TEST_P(ResidentTensorsOf, APackedModelAreThoseOfItsSource) {
  const SourceModel model = open(path());
  EXPECT_EQ(packed_shapes(model.config(), false), shapes_of(model));
  EXPECT_EQ(resident_tensors(model.config(), false).back().name, "embed_tokens");
}

// Exactly the tensors that no source quantizes are kept as F32 rows.
TEST_P(ResidentTensorsOf, APackedModelAreVectorsOnlyWhereTheSourceIsPlain) {
  const SourceModel model = open(path());
  std::map<std::string, bool> is_vector;
  for (const TensorShape& tensor : resident_tensors(model.config(), false))
    is_vector[tensor.name] = tensor.is_vector;
  for (const NamedMatrix& named : model.resident()) {
    if (is_vector.at(named.name)) {
      EXPECT_TRUE(std::holds_alternative<PlainFormat>(named.matrix.encoding)) << named.name;
    } else {
      EXPECT_FALSE(named.matrix.add_one) << named.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, ResidentTensorsOf,
                         testing::Values("qwen35moe-tiny-bf16", "qwen35moe-tiny-mlx4", "qwen35moe-long-mlx4",
                                         "deepseekv3-tiny-bf16", "deepseekv3-tiny-fp8",
                                         "deepseekv3-tiny-mlx4", "deepseekv3-long-mlx4", "tern"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           for (char& letter : name)
                             if (letter == '-') letter = '_';
                           return name;
                         });

TEST(ResidentTensorsOfNewerMlx, HaveTheSplitProjections) {
  TinyCheckpoint tiny = tiny_deepseek_mlx();
  tiny.remove_all("kv_b_proj");
  for (const char* layer : {"0", "1"}) {
    const std::string base = std::string("model.layers.") + layer + ".self_attn.";
    tiny.module(base + "embed_q", {2, 64, 64}, kAffine4);
    tiny.module(base + "unembed_out", {2, 32, 64}, kAffine4);
  }
  const TemporaryDirectory directory;
  const SourceModel model = open(tiny.write(directory));
  EXPECT_EQ(packed_shapes(model.config(), true), shapes_of(model));
}

TEST(ResidentTensorsOfATinyModel, FollowAConfigWithoutAQueryLatent) {
  TinyCheckpoint tiny = tiny_deepseek_mlx();
  tiny.config["q_lora_rank"] = nullptr;
  tiny.remove_all("self_attn.q_");
  for (const char* layer : {"0", "1"})
    tiny.module(std::string("model.layers.") + layer + ".self_attn.q_proj", {160, 64}, kAffine4);
  const TemporaryDirectory directory;
  const SourceModel model = open(tiny.write(directory));
  EXPECT_EQ(packed_shapes(model.config(), false), shapes_of(model));
}

}  // namespace
}  // namespace moeflux
