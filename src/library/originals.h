#pragma once
// Packs the original's artifacts.
//
// The engine runs only the packed format, so the artifacts are packed once before they are opened, into a
// folder beside the experts, of which there is one for each choice of experts. Blocks until done or
// cancelled; a pack that was interrupted is continued. If several threads or processes open the same
// artifacts, the first packs them and the others wait, which cannot be cancelled.

#include <atomic>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/result.h"
#include "io/file_system.h"
#include "model/packed_model.h"
#include "pack/pack.h"

namespace moeflux {

// In `experts_dir`, with 4-bit and with 2-bit experts.
inline constexpr std::string_view kPackedOriginals = "moeflux_packed";
inline constexpr std::string_view kPackedOriginals2bit = "moeflux_packed_2bit";

struct ArtifactPaths {
  std::filesystem::path weights;      // model_weights.bin
  std::filesystem::path manifest;     // model_weights.json
  std::filesystem::path experts_dir;  // holds packed_experts/, packed_experts_2bit/ or both
  bool use_2bit = false;              // the latter, and no other; false: the former if present
};

struct PackedOriginals {
  PackedModel model;
  std::string name;  // the name of the folder of the artifacts
};

// Uses an existing packed model if it has the same shape as the artifacts, without a call of `progress`.
// Opens the packed model once. `cancel` may be null; the error is then never `cancelled`.
Result<PackedOriginals> pack_originals(FileSystem& files, const ArtifactPaths& artifacts,
                                       FunctionRef<void(const PackProgress&)> progress,
                                       const std::atomic<bool>* cancel);

// The last nonempty component of a path: "a" of "x/a/".
std::string folder_name(const std::filesystem::path& path);

}  // namespace moeflux
