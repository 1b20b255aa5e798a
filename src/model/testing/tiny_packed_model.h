#pragma once
// Small hand-made configs, manifests and packed models for tests, independent of the packing code. The
// weights are filler bytes or random numbers. Test code only. Plain values; one thread at a time.

#include <random>
#include <string>
#include <vector>

#include "base/arithmetic.h"
#include "base/hash.h"
#include "io/testing/temporary_directory.h"
#include "model/manifest.h"
#include "model/packed_format.h"

namespace moeflux {

// Two layers, linear and full attention, each with 4 experts of 64 and a gated shared expert.
inline ModelConfig tiny_qwen_config() {
  const MoeConfig moe{.experts = 4,
                      .experts_per_token = 2,
                      .hidden_dim = 64,
                      .router = SoftmaxRouterConfig{},
                      .shared = SharedExpertConfig{.hidden_dim = 64, .gated = true}};
  const GatedDeltaNetConfig net{
      .key_heads = 2, .value_heads = 4, .key_head_dim = 16, .value_head_dim = 16, .conv_width = 4};
  const GatedAttentionConfig attention{
      .query_heads = 2,
      .kv_heads = 1,
      .head_dim = 32,
      .rope = {.theta = 1e7, .dims = 8, .pairing = RopePairing::half_split, .yarn = {}}};
  return {.family = Family::qwen3_5_moe,
          .dim = 64,
          .vocabulary = 96,
          .max_positions = 512,
          .norm_eps = 1e-6,
          .tied_embeddings = false,
          .end_tokens = {TokenId(95), TokenId(3)},
          .layers = {{net, moe}, {attention, moe}}};
}

// Two layers, dense and MoE, with YaRN, a latent for queries and a shared expert.
inline ModelConfig tiny_deepseek_config() {
  const YarnConfig yarn{.factor = 40,
                        .beta_fast = 32,
                        .beta_slow = 1,
                        .mscale = 1,
                        .mscale_all_dim = 0.707,
                        .original_positions = 4096};
  const MlaConfig mla{
      .heads = 2,
      .query_latent_dim = 64,
      .latent_dim = 64,
      .nope_dim = 64,
      .rope_dim = 16,
      .value_dim = 32,
      .rope = {.theta = 10000, .dims = 16, .pairing = RopePairing::interleaved, .yarn = yarn}};
  const MoeConfig moe{
      .experts = 4,
      .experts_per_token = 2,
      .hidden_dim = 64,
      .router = GroupedSigmoidRouterConfig{.groups = 2, .groups_kept = 1, .normalise = true, .scale = 2.5},
      .shared = SharedExpertConfig{.hidden_dim = 64, .gated = false}};
  return {.family = Family::deepseek_v3,
          .dim = 64,
          .vocabulary = 96,
          .max_positions = 512,
          .norm_eps = 1e-6,
          .tied_embeddings = false,
          .end_tokens = {TokenId(1)},
          .layers = {{mla, DenseMlpConfig{.hidden_dim = 128}}, {mla, moe}}};
}

// Every matrix in 4 bits, but the experts of odd layers in 8 bits.
inline Manifest tiny_manifest(const ModelConfig& config) {
  constexpr AffineFormat kFour{.bits = 4, .group = 64, .scale_dtype = Dtype::bf16};
  constexpr AffineFormat kEight{.bits = 8, .group = 64, .scale_dtype = Dtype::bf16};
  Manifest manifest;
  manifest.fingerprint = digest_of("tiny");
  manifest.source_format = "MLX safetensors";
  manifest.config = config;
  for (const TensorShape& shape : resident_tensors(config, false)) {
    const std::uint64_t offset = divide_up(manifest.resident_bytes, kTensorAlignment) * kTensorAlignment;
    Encoding encoding = kFour;
    if (shape.cols % kFour.group != 0) encoding = PlainFormat{Dtype::bf16};
    if (shape.is_vector) encoding = PlainFormat{Dtype::f32};
    const MatrixFormat format{shape.rows, shape.cols, encoding};
    const TensorLayout layout = shape.is_vector ? TensorLayout::rows : TensorLayout::tile16;
    manifest.tensors.push_back(
        {shape.name, format, layout, offset, packed_bytes(format, layout), offset + 17});
    manifest.resident_bytes = offset + manifest.tensors.back().bytes;
  }
  for (std::uint32_t i = 0; i < config.layers.size(); ++i) {
    const auto* moe = std::get_if<MoeConfig>(&config.layers[i].mlp);
    if (moe == nullptr) continue;
    const Encoding encoding = i % 2 == 1 ? kEight : kFour;
    const ExpertFormat format{{moe->hidden_dim, config.dim, encoding},
                              {moe->hidden_dim, config.dim, encoding},
                              {config.dim, moe->hidden_dim, encoding}};
    const auto index = static_cast<std::uint32_t>(manifest.expert_formats.size());
    manifest.expert_formats.push_back(format);
    const std::uint64_t bytes = record_layout(format).record_bytes;
    ExpertFile file{LayerId(i), expert_file_name(LayerId(i)), moe->experts * bytes, {}};
    for (std::uint64_t e = 0; e < moe->experts; ++e) file.records.push_back({index, e * bytes, bytes, e});
    manifest.experts.push_back(std::move(file));
  }
  manifest.text_files = {"config.json", "tokenizer.json"};
  return manifest;
}

// Writes the files that the manifest names to the folder `name`; returns its path.
inline std::filesystem::path write_packed_model(const TemporaryDirectory& directory, const Manifest& manifest,
                                                const std::string& name = "model") {
  directory.write(name + "/resident.bin", std::string(manifest.resident_bytes, 'r'));
  for (const ExpertFile& file : manifest.experts)
    directory.write(name + "/" + file.file, std::string(file.bytes, 'e'));
  for (const std::string& text : manifest.text_files) directory.write(name + "/" + text, "{}");
  return directory.write(name + "/manifest.json", write_manifest(manifest)).parent_path();
}

// Bytes that are small numbers when read as BF16 or F32 at any even offset, and valid codes of any width.
inline std::string random_weights(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) {
    const auto drawn = static_cast<unsigned>(random());
    bytes[i] = static_cast<char>(i % 2 == 0 ? drawn & 0xff : (drawn & 0x80) | 0x3d);
  }
  return bytes;
}

// Overwrites the weights of a model from write_packed_model() with finite random numbers.
inline void write_random_weights(const TemporaryDirectory& temporary, const Manifest& manifest) {
  temporary.write("model/resident.bin", random_weights(manifest.resident_bytes, 1));
  for (const ExpertFile& file : manifest.experts)
    temporary.write("model/" + file.file, random_weights(file.bytes, 2));
}

}  // namespace moeflux
