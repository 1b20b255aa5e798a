// model_weights.json: what it must say, and what is said when it does not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "source/original.h"
#include "source/testing/original_builder.h"

namespace moeflux {
namespace {

using testing::HasSubstr;

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

TEST_F(OriginalManifestFile, SaysTheBitsOfEachTensor) {
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

TEST_F(OriginalManifestFile, NeedsItsTwoParts) {
  manifest.erase("tensors");
  EXPECT_EQ(refusal(), "manifest.json: 'tensors' is missing");
  manifest["tensors"] = 1;
  EXPECT_EQ(refusal(), "manifest.json: 'tensors' must be an object, found 1");
  manifest["tensors"] = Json::object();
  manifest["config"] = "none";
  EXPECT_EQ(refusal(), "manifest.json: 'config' must be an object, found \"none\"");
  manifest.erase("config");
  EXPECT_EQ(refusal(), "manifest.json: 'config' is missing");
}

TEST_F(OriginalManifestFile, NeedsEveryKeyOfATensor) {
  for (const char* key : {"offset", "size", "dtype", "shape"}) {
    const Json kept = embedding;
    embedding.erase(key);
    EXPECT_EQ(refusal(), "manifest.json: tensor '" + kEmbedding + "': '" + key + "' is missing");
    embedding[key] = true;
    EXPECT_THAT(refusal(), HasSubstr("tensor '" + kEmbedding + "': '" + key + "' must be "));
    embedding = kept;
  }
  embedding = 7;
  EXPECT_THAT(refusal(), HasSubstr("expected an object, found 7"));
}

TEST_F(OriginalManifestFile, KeepsTensorsInsideTheWeights) {
  embedding["offset"] = artifacts.weights.size() - 3071;
  EXPECT_THAT(refusal(), HasSubstr("3072 bytes at offset"));
  EXPECT_THAT(refusal(), HasSubstr("do not fit into model_weights.bin"));
  embedding["offset"] = ~std::uint64_t{0};
  EXPECT_THAT(refusal(), HasSubstr("3072 bytes at offset 18446744073709551615 do not fit"));
  embedding["offset"] = 64u;
  embedding["size"] = ~std::uint64_t{0};
  EXPECT_THAT(refusal(), HasSubstr("do not fit into model_weights.bin"));
}

TEST_F(OriginalManifestFile, WantsShapesThatFillTheirBytes) {
  embedding["size"] = 3068u;
  EXPECT_THAT(refusal(), HasSubstr("U32 [96, 8] does not fill its 3068 bytes"));
  embedding["size"] = 0u;
  embedding["shape"] = {std::uint64_t{1} << 32, std::uint64_t{1} << 32};
  EXPECT_THAT(refusal(), HasSubstr("does not fill its 0 bytes"));
  embedding["shape"] = {-1};
  EXPECT_THAT(refusal(), HasSubstr("'shape' must be an array of whole numbers"));
  embedding["shape"] = Json::array({1, 1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_THAT(refusal(), HasSubstr("'shape' must be an array of at most 8 whole numbers"));
}

TEST_F(OriginalManifestFile, WantsKnownTypesAndBits) {
  embedding["dtype"] = "Q4_K";
  EXPECT_THAT(refusal(), HasSubstr("'dtype' must be a dtype such as U32, BF16 or F32, found \"Q4_K\""));
  embedding["dtype"] = "U32";
  embedding["bits"] = 9u;
  EXPECT_THAT(refusal(), HasSubstr("'bits' must be a whole number from 1 to 8, found 9"));
}

TEST_F(OriginalManifestFile, CountsItsTensors) {
  manifest["num_tensors"] = 3u;
  EXPECT_THAT(refusal(), HasSubstr("'num_tensors' is 3, but "));
  manifest.erase("num_tensors");
  EXPECT_TRUE(parse());
}

TEST_F(OriginalManifestFile, NamesTheConfigKeyThatIsMissing) {
  manifest["config"].erase("hidden_size");
  EXPECT_EQ(refusal(), "manifest.json: config: 'hidden_size' is missing");
}

TEST_F(OriginalManifestFile, ThatIsNotJsonIsRefused) {
  for (const char* text : {"", "[]", "{", "{\"tensors\": {}, \"tensors\": {}}"}) {
    const auto parsed = parse_original_manifest(text, "manifest.json", 0, FileId(0), notes);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), ErrorCode::corrupt_data);
  }
}

}  // namespace
}  // namespace moeflux
