#pragma once
// The tensors of a checkpoint directory: one model.safetensors, or shards and their index.

#include <filesystem>

#include "base/object_reader.h"
#include "base/result.h"
#include "io/file_system.h"
#include "source/notes.h"
#include "source/tensor_catalog.h"

namespace moeflux {

// Of all shards together, so that opening any source stays within 100 MB: 200 bytes for each of 200,000
// tensors.
inline constexpr std::uint64_t kMaxHeaderBytesOfSource = 40u << 20;

// Opens every shard and reads its header. With an index, each tensor must be in the shard that the index
// says.
Result<TensorCatalog> open_checkpoint_tensors(FileSystem& files, const std::filesystem::path& directory,
                                              Notes& notes);

}  // namespace moeflux
