#include "source/source_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/packed_model.h"
#include "source/checkpoint_tensors.h"
#include "source/end_tokens.h"
#include "source/model_config.h"
#include "source/original.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

Error unsupported(const fs::path& path, std::string_view format) {
  return {ErrorCode::unsupported,
          fmt::format(
              "{}: this is {}, which moeflux does not read yet; it reads MLX and Hugging Face safetensors "
              "directories (BF16, FP8, MLX affine)",
              path.string(), format)};
}

bool has_suffix(const std::vector<std::string>& names, std::string_view suffix) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.ends_with(suffix); });
}

// The error for a directory without a checkpoint that can be opened. It names what the directory holds
// instead.
Error explain(FileSystem& files, const fs::path& directory) {
  auto names = files.list(directory);
  if (!names) return std::move(names).error();
  const auto has = [&](std::string_view name) {
    return std::find(names->begin(), names->end(), name) != names->end();
  };
  if (has(kManifestName) && has(kResidentName))
    return {ErrorCode::unsupported,
            fmt::format(
                "{}: this is a packed model already; use it as it is, or pass the source it was packed from",
                directory.string())};
  if (has_suffix(*names, ".gguf")) return unsupported(directory, "a GGUF model");
  if (has_suffix(*names, ".safetensors"))
    return {ErrorCode::not_found,
            fmt::format("{}: found safetensors files, but no config.json", directory.string())};
  if (has_suffix(*names, ".pth") || has_suffix(*names, ".pt") ||
      std::any_of(names->begin(), names->end(), [](const std::string& name) {
        return name.starts_with("pytorch_model") && name.ends_with(".bin");
      }))
    return unsupported(directory, "a PyTorch pickle checkpoint");
  return {
      ErrorCode::not_found,
      fmt::format(
          "{}: no model here; expected config.json and model.safetensors (or its shards and index), or the "
          "original's model_weights.json",
          directory.string())};
}

// The directory of the model at `path`.
Result<fs::path> directory_of(FileSystem& files, const fs::path& path) {
  MF_TRY(const FileInfo info, files.info(path));
  if (info.kind == FileKind::directory) return path;
  const std::string name = path.filename().string();
  if (name.ends_with(".gguf")) return unsupported(path, "a GGUF model");
  if (info.kind == FileKind::regular) {
    MF_TRY(const auto file, files.open_read(path));
    std::array<std::byte, 4> magic{};
    MF_TRY(const std::size_t read, file->read_some(0, magic));
    if (read == 4 && std::string_view(reinterpret_cast<const char*>(magic.data()), 4) == "GGUF")
      return unsupported(path, "a GGUF model");
    if (name == "config.json" || name == kManifestName || name == "model_weights.json" ||
        name == "model_weights.bin" || name.ends_with(".safetensors") ||
        name.ends_with(".safetensors.index.json"))
      return path.has_parent_path() ? path.parent_path() : fs::path(".");
  }
  return Error{ErrorCode::not_found, fmt::format("{}: not a model; expected a directory with config.json and "
                                                 "safetensors files",
                                                 path.string())};
}

// MLX renames the experts of every model it converts, quantized or not.
SourceKind writer_of(const TensorCatalog& catalog) {
  const auto tensors = catalog.all();
  const bool mlx = std::any_of(tensors.begin(), tensors.end(), [](const TensorEntry& tensor) {
    return tensor.name.find(".switch_mlp.") != std::string::npos;
  });
  return mlx ? SourceKind::mlx_safetensors : SourceKind::hugging_face_safetensors;
}

}  // namespace

std::string_view name_of(SourceKind kind) {
  switch (kind) {
    case SourceKind::mlx_safetensors: return "MLX safetensors";
    case SourceKind::hugging_face_safetensors: return "Hugging Face safetensors";
    case SourceKind::original_artifacts: return "original artifacts";
  }
  return "unknown";
}

std::string expert_matrix_name(ExpertKey key, std::string_view part) {
  return fmt::format("layers.{}.mlp.experts.{}.{}", key.layer.index(), key.expert.index(), part);
}

Result<SourceModel> SourceModel::open(FileSystem& files, const fs::path& path, const SourceOptions& options) {
  Result<SourceModel> model = open_directory_of(files, path, options);
  // io reports a pipe or a directory in place of a file as invalid_argument; here it means an invalid model.
  if (!model && model.error().code() == ErrorCode::invalid_argument)
    return Error{ErrorCode::corrupt_data, model.error().message()};
  if (model && options.use_2bit && model->kind() != SourceKind::original_artifacts)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: 2-bit experts can be chosen in the original's artifacts only, this is {}",
                             path.string(), name_of(model->kind()))};
  return model;
}

Result<SourceModel> SourceModel::open_directory_of(FileSystem& files, const fs::path& path,
                                                   const SourceOptions& options) {
  MF_TRY(const fs::path directory, directory_of(files, path));
  MF_TRY(const bool has_config, files.exists(directory / "config.json"));
  MF_TRY(const std::optional<OriginalPaths> original, find_original(files, directory));
  MF_TRY(const bool has_shards, files.exists(directory / "model.safetensors.index.json"));
  MF_TRY(const bool has_single, files.exists(directory / "model.safetensors"));
  // NAME-mlx-4bit beside NAME-artifacts has the config and may have the checkpoint; if so, open the
  // checkpoint.
  if (has_config && (has_shards || has_single || !original)) {
    if (!has_shards && !has_single) {
      Error why = explain(files, directory);
      if (why.code() == ErrorCode::unsupported) return why;
    }
    return open_checkpoint(files, directory);
  }
  if (original) return open_original(files, directory, *original, options);
  return explain(files, directory);
}

Result<SourceModel> SourceModel::open_checkpoint(FileSystem& files, const fs::path& directory) {
  SourceModel model;
  model.path_ = directory;
  const fs::path config_path = directory / "config.json";
  MF_TRY(const std::string text, files.read_text(config_path, kMaxConfigBytes));
  MF_TRY(const Json document, parse_json(text, config_path.string()));
  MF_TRY(const ObjectReader config, ObjectReader::as_object(document, config_path.string()));
  MF_TRY(const Quantization quantization, parse_quantization(config, model.notes_));
  MF_TRY(model.config_, parse_model_config(config, model.notes_));
  model.text_folders_ = {directory};
  MF_TRY(const TextJson generation, read_text_json(files, model.text_folders_, "generation_config.json"));
  MF_TRY(model.config_.end_tokens,
         list_end_tokens(config, generation.reader(), {}, model.config_.vocabulary, model.notes_));
  MF_TRY(model.catalog_, open_checkpoint_tensors(files, directory, model.notes_));
  model.kind_ = writer_of(model.catalog_);
  MatrixResolver resolver(model.catalog_, quantization);
  SafetensorsExperts experts(resolver);
  auto tensors = map_tensors(model.config_, resolver, experts, model.notes_);
  if (!tensors) return std::move(tensors).error().during(directory.string());
  model.tensors_ = *std::move(tensors);
  return model;
}

Result<SourceModel> SourceModel::open_original(FileSystem& files, const fs::path& directory,
                                               const OriginalPaths& paths, const SourceOptions& options) {
  SourceModel model;
  model.path_ = directory;
  model.kind_ = SourceKind::original_artifacts;
  MF_TRY(const std::string text, files.read_text(paths.manifest, kMaxConfigBytes));
  MF_TRY(auto weights, files.open_read(paths.weights));
  MF_TRY(const std::uint64_t weights_bytes, weights->size());
  const FileId id = model.catalog_.add_file(std::move(weights));
  MF_TRY(OriginalManifest manifest,
         parse_original_manifest(text, paths.manifest.string(), weights_bytes, id, model.notes_));
  model.config_ = std::move(manifest.config);
  model.text_folders_ = {directory, paths.mlx};
  MF_TRY(const TextJson config, read_text_json(files, model.text_folders_, "config.json"));
  MF_TRY(const TextJson generation, read_text_json(files, model.text_folders_, "generation_config.json"));
  const ModelConfig& shape = model.config_;
  MF_TRY(const std::vector<TokenId> end_tokens,
         list_end_tokens(config.reader(), generation.reader(),
                         family_end_tokens(shape.family, shape.vocabulary), shape.vocabulary, model.notes_));
  append_new(model.config_.end_tokens, end_tokens);
  MF_TRY_STATUS(model.catalog_.add_tensors(std::move(manifest.tensors)));
  MF_TRY(OriginalExperts experts,
         OriginalExperts::find(files, model.catalog_, paths.experts_root, options.use_2bit, model.notes_));
  MatrixResolver resolver(model.catalog_, manifest.quantization);
  auto tensors = map_tensors(model.config_, resolver, experts, model.notes_);
  if (!tensors) return std::move(tensors).error().during(directory.string());
  model.tensors_ = *std::move(tensors);
  return model;
}

const SourceExperts* SourceModel::experts(LayerId layer) const {
  const auto& experts = tensors_.experts[layer.index()];
  return experts ? &*experts : nullptr;
}

Result<ModelSummary> SourceModel::summarise() const {
  ModelSummary summary;
  summary.path = path_.string();
  summary.format = name_of(kind_);
  summary.config = config_;
  summary.notes = notes_;
  summary.skipped_bytes = tensors_.skipped_bytes;
  summary.files = catalog_.file_count();
  for (std::uint32_t i = 0; i < catalog_.file_count(); ++i) {
    MF_TRY(const std::uint64_t size, catalog_.file(FileId(i)).size());
    summary.file_bytes += size;
  }
  for (const NamedMatrix& named : tensors_.resident) {
    add_use(summary.resident_encodings, named.matrix.encoding, 1, named.matrix.total_bytes());
    summary.resident_bytes += named.matrix.total_bytes();
  }
  for (std::uint32_t i = 0; i < config_.layers.size(); ++i) {
    const SourceExperts* experts = this->experts(LayerId(i));
    if (experts == nullptr) continue;
    // Stacked experts are all alike. Separate ones may differ, so they are counted one by one.
    const std::uint32_t kinds = experts->is_uniform() ? 1 : experts->count();
    const std::uint32_t each = experts->is_uniform() ? experts->count() : 1;
    std::uint64_t largest = 0;
    for (std::uint32_t e = 0; e < kinds; ++e) {
      const ExpertMatrices expert = experts->expert(ExpertId(e));
      for (const SourceMatrix* matrix : {&expert.gate, &expert.up, &expert.down})
        add_use(summary.expert_encodings, matrix->encoding, each, each * matrix->total_bytes());
      const std::uint64_t bytes = expert.total_bytes();
      summary.expert_bytes += bytes * each;
      summary.largest_expert_bytes = std::max(summary.largest_expert_bytes, bytes);
      summary.smallest_expert_bytes =
          summary.experts == 0 ? bytes : std::min(summary.smallest_expert_bytes, bytes);
      summary.experts += each;
      largest = std::max(largest, bytes);
    }
    summary.token_expert_bytes += largest * std::get<MoeConfig>(config_.layers[i].mlp).experts_per_token;
  }
  sort_by_bytes(summary.resident_encodings);
  sort_by_bytes(summary.expert_encodings);
  return summary;
}

}  // namespace moeflux
