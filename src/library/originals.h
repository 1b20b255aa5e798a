#pragma once
// The original's artifacts as a packed model.
//
// The engine runs one format, ours, so the artifacts are packed before they are opened: into a folder beside
// the experts, once. Blocks until done. One thread at a time for the same artifacts.

#include <filesystem>
#include <string>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

inline constexpr std::string_view kPackedOriginals = "moeflux_packed";  // in `experts_dir`

struct ArtifactPaths {
  std::filesystem::path weights;      // model_weights.bin
  std::filesystem::path manifest;     // model_weights.json
  std::filesystem::path experts_dir;  // holds packed_experts/
  bool use_2bit = false;
};

struct PackedOriginals {
  std::filesystem::path path;  // of the packed model
  std::string name;            // of the folder that the artifacts are in
};

// A packed model that is there already is used when its shape is that of the artifacts.
Result<PackedOriginals> pack_originals(FileSystem& files, const ArtifactPaths& artifacts);

// The last part of a path that names something: "a" of "x/a/".
std::string folder_name(const std::filesystem::path& path);

}  // namespace moeflux
