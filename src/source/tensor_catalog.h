#pragma once
// All tensors of a source by name, and the open files that hold them.
//
// Filled from the shards of a checkpoint or from the original's manifest, by one thread; immutable and safe
// for any thread after that, because reads carry their own offsets. Owns its files.

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"
#include "source/safetensors/tensor_entry.h"

namespace moeflux {

// The experts of an FP8 release with 60 layers of 512, each with three weights and three scales, are 184,320
// tensors.
inline constexpr std::size_t kMaxTensorsInSource = 200'000;

class TensorCatalog {
 public:
  TensorCatalog() = default;

  // Keeps `file` open and gives it an id.
  FileId add_file(std::unique_ptr<ReadFile> file);

  // Adds tensors of files already added. A name that exists already is `corrupt_data`; the message names both
  // files.
  Status add_tensors(std::vector<TensorEntry> tensors);

  const TensorEntry* find(std::string_view name) const;  // null: no such tensor
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
