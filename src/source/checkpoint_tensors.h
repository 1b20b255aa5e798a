#pragma once
// The tensors of a checkpoint directory: a single model.safetensors, or shards with an index.
// Free functions: any thread.

#include <filesystem>

#include "base/json/object_reader.h"
#include "base/result.h"
#include "io/file_system.h"
#include "source/notes.h"
#include "source/tensor_catalog.h"

namespace moeflux {

// Limit for the headers of all shards together: 200 bytes for each of 200,000 tensors. It keeps opening any
// source within 100 MB.
inline constexpr std::uint64_t kMaxHeaderBytesOfSource = 40u << 20;

// Opens every shard and reads its header. If there is an index, each tensor that it lists must be in the
// shard it names.
Result<TensorCatalog> open_checkpoint_tensors(FileSystem& files, const std::filesystem::path& directory,
                                              Notes& notes);

}  // namespace moeflux
