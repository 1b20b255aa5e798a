#pragma once
// A packed model, opened.
//
// open() parses the manifest, opens every file it names and checks their lengths. It reads no weights, so
// opening hundreds of gigabytes takes milliseconds. After it succeeds, every tensor and record lies within
// its file; `verify` checks that the bytes are unchanged. Owns its files. Immutable: any thread.

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "io/file_system.h"
#include "model/packed_format.h"
#include "model/summary.h"

namespace moeflux {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kResidentName = "resident.bin";

class PackedModel {
 public:
  // True if `path` is a directory with a manifest.
  static Result<bool> is_at(FileSystem& files, const std::filesystem::path& path);

  // Uses `files` only during the call.
  static Result<PackedModel> open(FileSystem& files, const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  const ModelConfig& config() const { return manifest_.config; }

  const PackedTensor* find(std::string_view name) const;  // null: no such tensor
  const ReadFile& resident_file() const { return *resident_; }

  // Requires: `layer` has routed experts.
  const ExpertFile& experts(LayerId layer) const;
  const ReadFile& expert_file(LayerId layer) const;
  const ExpertRecord& record(ExpertKey key) const;
  const ExpertFormat& expert_format(const ExpertRecord& record) const {
    return manifest_.expert_formats[record.format];
  }

  // For `inspect`. Record sizes exclude padding.
  ModelSummary summarise() const;

 private:
  PackedModel() = default;

  std::filesystem::path path_;
  Manifest manifest_;
  std::unique_ptr<ReadFile> resident_;
  std::vector<std::unique_ptr<ReadFile>> expert_files_;  // parallel to manifest_.experts
  std::vector<std::uint32_t> file_of_layer_;             // index into both; kNoFile for a dense layer
};

}  // namespace moeflux
