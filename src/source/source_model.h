#pragma once
// An opened source: a model in one of the supported source formats.
//
// open() recognizes what is at a path (an MLX or Hugging Face checkpoint, or the original's artifacts), reads
// config and headers, and locates every matrix of the model. It reads no weights. After it succeeds, the
// model is complete: every matrix has bytes of the right size in an existing file. Formats that are
// recognized but not supported (GGUF, GPTQ, AWQ, ...) and packed models are `unsupported`; the message names
// them. Immutable: any thread.

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/json/object_reader.h"
#include "base/result.h"
#include "io/file_system.h"
#include "model/config.h"
#include "model/summary.h"
#include "source/notes.h"
#include "source/tensor_catalog.h"
#include "source/tensor_map.h"

namespace moeflux {

struct SourceOptions {
  // The original's artifacts: reads packed_experts_2bit instead of packed_experts. Other sources refuse it
  // with `invalid_argument`.
  bool use_2bit = false;
};

enum class SourceKind { mlx_safetensors, hugging_face_safetensors, original_artifacts };
std::string_view name_of(SourceKind kind);

class SourceModel {
 public:
  // `path` is a directory, or a file in it such as model.safetensors or config.json. Uses `files` only during
  // the call.
  static Result<SourceModel> open(FileSystem& files, const std::filesystem::path& path,
                                  const SourceOptions& options = {});

  SourceKind kind() const { return kind_; }
  const std::filesystem::path& path() const { return path_; }
  // Where the text files of the model are: config.json, the tokenizer, generation_config.json. The first
  // folder that has one of them counts.
  const std::vector<std::filesystem::path>& text_folders() const { return text_folders_; }
  const ModelConfig& config() const { return config_; }
  const std::vector<NamedMatrix>& resident() const { return tensors_.resident; }
  // The routed experts of a layer; null: a dense layer.
  const SourceExperts* experts(LayerId layer) const;
  const TensorCatalog& catalog() const { return catalog_; }
  const Notes& notes() const { return notes_; }

  // For `inspect`.
  Result<ModelSummary> summarise() const;

 private:
  SourceModel() = default;
  static Result<SourceModel> open_directory_of(FileSystem& files, const std::filesystem::path& path,
                                               const SourceOptions& options);
  static Result<SourceModel> open_checkpoint(FileSystem& files, const std::filesystem::path& directory);
  static Result<SourceModel> open_original(FileSystem& files, const std::filesystem::path& directory,
                                           const struct OriginalPaths& paths, const SourceOptions& options);

  SourceKind kind_{};
  std::filesystem::path path_;
  std::vector<std::filesystem::path> text_folders_;
  ModelConfig config_{};
  TensorCatalog catalog_;
  SourceTensors tensors_;
  Notes notes_;
};

// The name of a routed expert's matrix in messages and listings: "layers.3.mlp.experts.17.gate_proj".
std::string expert_matrix_name(ExpertKey key, std::string_view part);

}  // namespace moeflux
