#pragma once
// Every tensor of a source by name, and the open files that hold them.
//
// Filled from the shards of a checkpoint (or from the original's manifest), then read-only. Owns its files.
// Thread-safe once filled: reads name their own offsets.

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"
#include "source/tensor_entry.h"

namespace moeflux {

// An FP8 release with 60 layers of 512 experts, each three weights and three scales, has 184,320 for these.
inline constexpr std::size_t kMaxTensorsInSource = 200'000;

class TensorCatalog {
 public:
  TensorCatalog() = default;

  // Keeps `file` open and gives it an id.
  FileId add_file(std::unique_ptr<ReadFile> file);

  // Adds tensors of files already added. A name that is there already is `corrupt_data`: it names both files.
  Status add_tensors(std::vector<TensorEntry> tensors);

  const TensorEntry* find(std::string_view name) const;  // or null
  std::optional<std::size_t> index_of(std::string_view name) const;

  // The tensors whose names begin with `prefix`, in ascending order.
  std::span<const TensorEntry> with_prefix(std::string_view prefix) const;
  std::span<const TensorEntry> all() const { return tensors_; }

  const ReadFile& file(FileId id) const { return *files_[id.index()]; }
  std::size_t file_count() const { return files_.size(); }

 private:
  std::vector<std::unique_ptr<ReadFile>> files_;
  std::vector<TensorEntry> tensors_;  // ascending names
};

}  // namespace moeflux
