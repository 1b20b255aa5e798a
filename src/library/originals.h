#pragma once
// Packs the original's artifacts.
//
// The engine runs only the packed format, so the artifacts are packed once before they are opened, into a
// folder beside the experts. Blocks until done. One thread at a time for the same artifacts.

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "io/file_system.h"
#include "model/packed_model.h"

namespace moeflux {

inline constexpr std::string_view kPackedOriginals = "moeflux_packed";  // in `experts_dir`

struct ArtifactPaths {
  std::filesystem::path weights;      // model_weights.bin
  std::filesystem::path manifest;     // model_weights.json
  std::filesystem::path experts_dir;  // holds packed_experts/
  bool use_2bit = false;
};

struct PackedOriginals {
  PackedModel model;
  std::string name;  // the name of the folder of the artifacts
};

// Uses an existing packed model if it has the same shape as the artifacts. Opens the packed model once.
Result<PackedOriginals> pack_originals(FileSystem& files, const ArtifactPaths& artifacts);

// The last nonempty component of a path: "a" of "x/a/".
std::string folder_name(const std::filesystem::path& path);

}  // namespace moeflux
