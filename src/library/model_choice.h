#pragma once
// Finds the packed model that a command runs, from what its user typed.
//
//   -m PATH         a packed model; or a checkpoint, which is packed once, into the user's cache
//   -hf ORG/NAME    a checkpoint in the local Hugging Face cache, packed the same way; nothing is downloaded
//   neither         the bundled demo, Tern, packed the same way
//
// Packed models are in CACHE/moeflux/models/NAME-DIGEST. The digest covers the checkpoint's path and its
// files' names and sizes, so a changed checkpoint is packed again, beside the old one. If several processes
// need the same model, the first packs it and the others wait.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/log.h"
#include "base/result.h"
#include "io/file_system.h"
#include "pack/pack.h"

namespace moeflux {

// Directories of this user and this installation.
struct Places {
  std::filesystem::path cache;                      // $XDG_CACHE_HOME or ~/.cache; empty: no home directory
  std::vector<std::filesystem::path> hub_caches;    // Hugging Face caches, preferred first
  std::vector<std::filesystem::path> demo_sources;  // candidates for the demo's checkpoint, preferred first
};

// Reads them from the environment. `variable` works like getenv; `program` is the running executable.
Places find_places(FunctionRef<const char*(const char*)> variable, const std::filesystem::path& program);

// The folder of cached models, or the current one if it does not exist.
std::filesystem::path folder_of_models(FileSystem& files, const Places& places);

struct ModelChoice {
  std::string model;    // -m
  std::string hf_repo;  // -hf
};

struct ChosenModel {
  std::filesystem::path packed;
  std::string name;  // for display: the folder, the repository, or "Tern"
  bool is_demo = false;
};

using PackObserver = FunctionRef<void(const PackProgress&)>;

// Packs the model if necessary; then writes a note to `log` and calls `progress` while it packs.
Result<ChosenModel> choose_model(FileSystem& files, const ModelChoice& choice, const Places& places,
                                 LogSink& log, PackObserver progress);

// Finds the snapshot of "org/name" in a hub cache: models--org--name/snapshots/COMMIT, where refs/main
// contains the commit. The message of not_found lists the places searched; a malformed name is
// invalid_argument.
Result<std::filesystem::path> find_in_hub_caches(FileSystem& files, const std::string& repository,
                                                 const std::vector<std::filesystem::path>& hub_caches);

}  // namespace moeflux
