#include "model/packed_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "model/manifest.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kNoFile = std::numeric_limits<std::uint32_t>::max();

Result<std::unique_ptr<ReadFile>> open_of_size(FileSystem& files, const fs::path& path,
                                               std::uint64_t expected) {
  MF_TRY(auto file, files.open_read(path));
  MF_TRY(const std::uint64_t found, file->size());
  if (found != expected)
    return Error{ErrorCode::corrupt_data,
                 fmt::format("{}: expected {} bytes, found {}; pack the source again", path.string(),
                             expected, found)};
  return file;
}

}  // namespace

Result<bool> PackedModel::is_at(FileSystem& files, const fs::path& path) {
  return files.exists(path / kManifestName);
}

Result<PackedModel> PackedModel::open(FileSystem& files, const fs::path& path) {
  PackedModel model;
  model.path_ = path;
  const fs::path manifest_path = path / kManifestName;
  MF_TRY(const std::string text, files.read_text(manifest_path, kManifestLimits.bytes));
  MF_TRY(model.manifest_, parse_manifest(text, manifest_path.string()));
  MF_TRY(model.resident_, open_of_size(files, path / kResidentName, model.manifest_.resident_bytes));
  model.file_of_layer_.assign(model.manifest_.config.layers.size(), kNoFile);
  for (const ExpertFile& experts : model.manifest_.experts) {
    model.file_of_layer_[experts.layer.index()] = static_cast<std::uint32_t>(model.expert_files_.size());
    MF_TRY(auto file, open_of_size(files, path / experts.file, experts.bytes));
    model.expert_files_.push_back(std::move(file));
  }
  for (const std::string& name : model.manifest_.text_files) {
    MF_TRY(const bool there, files.exists(path / name));
    if (!there)
      return Error{ErrorCode::not_found, fmt::format("{}: missing, but listed in {}; pack the source again",
                                                     (path / name).string(), manifest_path.string())};
  }
  return model;
}

const PackedTensor* PackedModel::find(std::string_view name) const {
  const auto found = std::find_if(manifest_.tensors.begin(), manifest_.tensors.end(),
                                  [&](const PackedTensor& tensor) { return tensor.name == name; });
  return found == manifest_.tensors.end() ? nullptr : &*found;
}

const ExpertFile& PackedModel::experts(LayerId layer) const {
  MF_REQUIRE(layer.index() < file_of_layer_.size() && file_of_layer_[layer.index()] != kNoFile,
             "the layer has routed experts");
  return manifest_.experts[file_of_layer_[layer.index()]];
}

const ReadFile& PackedModel::expert_file(LayerId layer) const {
  MF_REQUIRE(layer.index() < file_of_layer_.size() && file_of_layer_[layer.index()] != kNoFile,
             "the layer has routed experts");
  return *expert_files_[file_of_layer_[layer.index()]];
}

const ExpertRecord& PackedModel::record(ExpertKey key) const {
  const ExpertFile& file = experts(key.layer);
  MF_REQUIRE(key.expert.index() < file.records.size(), "the expert is one of the layer");
  return file.records[key.expert.index()];
}

ModelSummary PackedModel::summarise() const {
  ModelSummary summary;
  summary.path = path_.string();
  summary.format = fmt::format("packed model, tile16 (from {})", manifest_.source_format);
  summary.config = manifest_.config;
  summary.files = 1 + expert_files_.size();
  summary.file_bytes = manifest_.resident_bytes;
  for (const PackedTensor& tensor : manifest_.tensors) {
    add_use(summary.resident_encodings, tensor.format.encoding, 1, tensor.bytes);
    summary.resident_bytes += tensor.bytes;
  }
  for (const ExpertFile& file : manifest_.experts) {
    summary.file_bytes += file.bytes;
    std::uint64_t largest = 0;
    for (const ExpertRecord& record : file.records) {
      const ExpertFormat& format = expert_format(record);
      const RecordLayout layout = record_layout(format);
      const std::uint64_t gate_bytes = packed_bytes(format.gate, TensorLayout::tile16);
      add_use(summary.expert_encodings, format.gate.encoding, 1, gate_bytes);
      add_use(summary.expert_encodings, format.up.encoding, 1, layout.gate_up_bytes - gate_bytes);
      add_use(summary.expert_encodings, format.down.encoding, 1, layout.down_bytes);
      const std::uint64_t bytes = layout.payload_bytes();
      summary.smallest_expert_bytes =
          summary.experts == 0 ? bytes : std::min(summary.smallest_expert_bytes, bytes);
      summary.largest_expert_bytes = std::max(summary.largest_expert_bytes, bytes);
      summary.expert_bytes += bytes;
      ++summary.experts;
      largest = std::max(largest, bytes);
    }
    const auto& moe = std::get<MoeConfig>(manifest_.config.layers[file.layer.index()].mlp);
    summary.token_expert_bytes += largest * moe.experts_per_token;
  }
  sort_by_bytes(summary.resident_encodings);
  sort_by_bytes(summary.expert_encodings);
  return summary;
}

}  // namespace moeflux
