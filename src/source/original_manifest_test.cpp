// model_weights.json: what it must contain, and the errors if it does not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/states.h"
#include "source/original.h"
#include "source/testing/original_builder.h"

namespace moeflux {
namespace {

using test::States;

const std::string kEmbedding = "model.embed_tokens.weight";
const std::string kGate = "model.layers.0.mlp.gate.weight";

struct Manifest : testing::Test {
  OriginalArtifacts artifacts = original_of(tiny_qwen_mlx());
  Json& manifest = artifacts.manifest;
  Json& embedding = manifest["tensors"][kEmbedding];
  Notes notes;

  Result<OriginalManifest> parse() {
    return parse_original_manifest(manifest.dump(), "manifest.json", artifacts.weights.size(), FileId(0),
                                   notes);
  }
  std::string refusal() {
    const auto parsed = parse();
    if (parsed) return "no error";
    EXPECT_THAT(parsed.error().message(), testing::StartsWith("manifest.json: "));
    return parsed.error().message();
  }
};
using OriginalManifestFile = Manifest;

TEST_F(OriginalManifestFile, ListsTensorsByOffsetIntoTheWeights) {
  const auto parsed = parse();
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->tensors.size(), manifest["tensors"].size());
  const TensorEntry& first = parsed->tensors.front();
  EXPECT_EQ(first.name, kEmbedding);
  EXPECT_EQ(first.dtype, Dtype::u32);
  EXPECT_EQ(first.bytes, (ByteRange{FileId(0), 0, 96 * 8 * 4}));
  EXPECT_EQ(parsed->config.family, Family::qwen3_5_moe);
}

TEST_F(OriginalManifestFile, ReadsTheBitsOfEachTensor) {
  const auto parsed = parse();
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->quantization.of_module("model.embed_tokens"), (AffineParameters{4, 64}));
  EXPECT_EQ(parsed->quantization.of_module("model.layers.0.mlp.gate"), (AffineParameters{8, 64}));
}

TEST_F(OriginalManifestFile, WithoutBitsMeansFour) {
  manifest["tensors"][kGate].erase("bits");
  manifest["config"]["default_bits"] = 8u;
  const auto parsed = parse();
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->quantization.of_module("model.layers.0.mlp.gate"), (AffineParameters{4, 64}));
}

TEST_F(OriginalManifestFile, RequiresItsTwoParts) {
  manifest.erase("tensors");
  EXPECT_THAT(refusal(), States("manifest.json", "'tensors'", "missing"));
  manifest["tensors"] = 1;
  EXPECT_THAT(refusal(), States("manifest.json", "'tensors'", 1, "object"));
  manifest["tensors"] = Json::object();
  manifest["config"] = "none";
  EXPECT_THAT(refusal(), States("none", "manifest.json", "'config'", "object"));
  manifest.erase("config");
  EXPECT_THAT(refusal(), States("manifest.json", "'config'", "missing"));
}

TEST_F(OriginalManifestFile, RequiresEveryKeyOfATensor) {
  for (const char* key : {"offset", "size", "dtype", "shape"}) {
    const Json kept = embedding;
    embedding.erase(key);
    EXPECT_THAT(refusal(), States("manifest.json", "'" + kEmbedding + "'", key, "missing"));
    embedding[key] = true;
    EXPECT_THAT(refusal(), States("'" + kEmbedding + "'", key));
    embedding = kept;
  }
  embedding = 7;
  EXPECT_THAT(refusal(), States(7, "object"));
}

TEST_F(OriginalManifestFile, KeepsTensorsInsideTheWeights) {
  embedding["offset"] = artifacts.weights.size() - 3071;
  EXPECT_THAT(refusal(), States(3072));
  EXPECT_THAT(refusal(), States("model_weights.bin"));
  embedding["offset"] = ~std::uint64_t{0};
  EXPECT_THAT(refusal(), States(3072, "18446744073709551615"));
  embedding["offset"] = 64u;
  embedding["size"] = ~std::uint64_t{0};
  EXPECT_THAT(refusal(), States("model_weights.bin"));
}

TEST_F(OriginalManifestFile, RequiresShapesThatMatchTheirBytes) {
  embedding["size"] = 3068u;
  EXPECT_THAT(refusal(), States("U32", "[96, 8]", 3068));
  embedding["size"] = 0u;
  embedding["shape"] = {std::uint64_t{1} << 32, std::uint64_t{1} << 32};
  EXPECT_THAT(refusal(), States(0));
  embedding["shape"] = {-1};
  EXPECT_THAT(refusal(), States("'shape'", "array"));
  embedding["shape"] = Json::array({1, 1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_THAT(refusal(), States("'shape'", 8, "array"));
}

TEST_F(OriginalManifestFile, RequiresKnownDtypesAndBits) {
  embedding["dtype"] = "Q4_K";
  EXPECT_THAT(refusal(), States("Q4_K", "'dtype'", "U32", "BF16", "F32"));
  embedding["dtype"] = "U32";
  embedding["bits"] = 9u;
  EXPECT_THAT(refusal(), States("'bits'", 1, 8, 9, "number"));
}

TEST_F(OriginalManifestFile, ChecksTheNumberOfTensors) {
  manifest["num_tensors"] = 3u;
  EXPECT_THAT(refusal(), States("'num_tensors'", 3));
  manifest.erase("num_tensors");
  EXPECT_TRUE(parse());
}

TEST_F(OriginalManifestFile, NamesAMissingConfigKey) {
  manifest["config"].erase("hidden_size");
  EXPECT_THAT(refusal(), States("manifest.json", "'hidden_size'", "missing"));
}

TEST_F(OriginalManifestFile, RejectsInvalidJson) {
  for (const char* text : {"", "[]", "{", "{\"tensors\": {}, \"tensors\": {}}"}) {
    const auto parsed = parse_original_manifest(text, "manifest.json", 0, FileId(0), notes);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), ErrorCode::corrupt_data);
  }
}

}  // namespace
}  // namespace moeflux
