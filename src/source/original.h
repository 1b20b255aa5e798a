#pragma once
// The artifacts of the original moeflux and flash-moe: model_weights.bin and .json,
// packed_experts/layer_NN.bin.
//
// model_weights.json lists the resident tensors by offset into model_weights.bin and contains a config block.
// layer_NN.bin holds the experts of a layer back to back, each in nine parts: weight, scales and biases of
// gate, of up and of down. Experts are 4-bit in packed_experts/ and 2-bit in packed_experts_2bit/.
// docs/formats/original.md describes the bytes. One thread at a time.

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "io/file_system.h"
#include "model/config.h"
#include "source/expert_layouts.h"
#include "source/notes.h"
#include "source/quantization.h"
#include "source/tensor_catalog.h"

namespace moeflux {

inline constexpr std::string_view kPackedExperts = "packed_experts";  // 4-bit
inline constexpr std::string_view kPackedExperts2bit = "packed_experts_2bit";

struct OriginalPaths {
  std::filesystem::path weights;       // model_weights.bin
  std::filesystem::path manifest;      // model_weights.json
  std::filesystem::path experts_root;  // holds packed_experts/
  std::filesystem::path mlx;           // the rest of the MLX checkpoint: config, tokenizer; may not exist
};

// Finds the artifacts that `directory` belongs to; nullopt if there are none. The original's converters wrote
// three layouts:
//   artifacts/model_weights.*, root/packed_experts and mlx/ below `directory`, or it is one of the three;
//   everything in one folder;
//   siblings NAME-mlx-4bit, NAME-artifacts and NAME-root, one of which is `directory`.
Result<std::optional<OriginalPaths>> find_original(FileSystem& files, const std::filesystem::path& directory);

// The contents of model_weights.json. Offsets count from the beginning of model_weights.bin.
struct OriginalManifest {
  ModelConfig config;
  Quantization quantization;
  std::vector<TensorEntry> tensors;
};

// The tensors must fit into model_weights.bin, which has `weights_bytes` bytes.
Result<OriginalManifest> parse_original_manifest(std::string_view json, std::string_view what,
                                                 std::uint64_t weights_bytes, FileId weights, Notes& notes);

// Experts in layer_NN.bin. Opens each file on first use and keeps it in the catalog.
class OriginalExperts final : public ExpertLocator {
 public:
  // 4-bit experts if present, else 2-bit ones; with `use_2bit` only the latter. `not_found` without them.
  static Result<OriginalExperts> find(FileSystem& files, TensorCatalog& catalog,
                                      const std::filesystem::path& root, bool use_2bit, Notes& notes);

  Result<SourceExperts> locate(LayerId layer, const std::string& mlp, const ExpertDims& dims) override;

  std::uint32_t bits() const { return bits_; }

 private:
  OriginalExperts(FileSystem& files, TensorCatalog& catalog, std::filesystem::path folder, std::uint32_t bits)
      : files_(&files), catalog_(&catalog), folder_(std::move(folder)), bits_(bits) {}

  FileSystem* files_;
  TensorCatalog* catalog_;
  std::filesystem::path folder_;
  std::uint32_t bits_;
};

}  // namespace moeflux
