#pragma once
// A model as people have it on disk, opened.
//
// open() recognises what is at a path (an MLX or Hugging Face checkpoint, or the original's artifacts),
// reads its config and headers, and finds every matrix of the model; no weights are read. After it succeeds
// the model is complete: every matrix has its bytes, of the right size, in files that were there. Formats
// that are recognised but not read (GGUF, GPTQ, AWQ, ...) are `unsupported`, by name. Read-only: any thread.

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/object_reader.h"
#include "base/result.h"
#include "io/file_system.h"
#include "model/config.h"
#include "model/summary.h"
#include "source/notes.h"
#include "source/tensor_catalog.h"
#include "source/tensor_map.h"

namespace moeflux {

enum class SourceKind { mlx_safetensors, hugging_face_safetensors, original_artifacts };
std::string_view name_of(SourceKind kind);

class SourceModel {
 public:
  // `path` is a directory, or a file in it that people would point at (model.safetensors, config.json).
  // `files` is used while opening only.
  static Result<SourceModel> open(FileSystem& files, const std::filesystem::path& path);

  SourceKind kind() const { return kind_; }
  const std::filesystem::path& path() const { return path_; }
  const ModelConfig& config() const { return config_; }
  const std::vector<NamedMatrix>& resident() const { return tensors_.resident; }
  // The routed experts of a layer; null for a dense layer.
  const SourceExperts* experts(LayerId layer) const;
  const TensorCatalog& catalog() const { return catalog_; }
  const Notes& notes() const { return notes_; }

  // The numbers that `inspect` shows.
  Result<ModelSummary> summarise() const;

 private:
  SourceModel() = default;
  static Result<SourceModel> open_directory_of(FileSystem& files, const std::filesystem::path& path);
  static Result<SourceModel> open_checkpoint(FileSystem& files, const std::filesystem::path& directory);
  static Result<SourceModel> open_original(FileSystem& files, const std::filesystem::path& directory,
                                           const struct OriginalPaths& paths);

  SourceKind kind_{};
  std::filesystem::path path_;
  ModelConfig config_{};
  TensorCatalog catalog_;
  SourceTensors tensors_;
  Notes notes_;
};

// "layers.3.mlp.experts.17.gate_proj" and its siblings, as messages and listings call a routed expert's
// matrices.
std::string expert_matrix_name(ExpertKey key, std::string_view part);

}  // namespace moeflux
