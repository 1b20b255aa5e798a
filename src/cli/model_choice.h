#pragma once
// Which packed model a command runs, given what its user typed.
//
//   -m PATH         a packed model; or a checkpoint, which is packed into the user's cache first, once
//   -hf ORG/NAME    a checkpoint in the local Hugging Face cache, likewise; nothing is downloaded
//   neither         the bundled demo, Tern, likewise
//
// What is packed lies in CACHE/moeflux/models/NAME-DIGEST; the digest is of the checkpoint's place and of its files'
// names and sizes, so a checkpoint that has changed is packed again, beside the old one. Of several processes that want
// the same one the first packs and the others wait.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/log.h"
#include "base/result.h"
#include "io/file_system.h"

namespace moeflux::cli {

// The places of this user and this installation.
struct Places {
  std::filesystem::path cache;                      // $XDG_CACHE_HOME or ~/.cache; empty: there is no home
  std::vector<std::filesystem::path> hub_caches;    // where Hugging Face keeps its snapshots, best first
  std::vector<std::filesystem::path> demo_sources;  // where the demo's checkpoint may be, best first
};

// From the environment: `variable` is like getenv. `program`: the running executable.
Places find_places(FunctionRef<const char*(const char*)> variable, const std::filesystem::path& program);

// The folder that models are cached in, or the current one where that is not there.
std::filesystem::path folder_of_models(FileSystem& files, const Places& places);

struct ModelChoice {
  std::string model;    // -m
  std::string hf_repo;  // -hf
};

struct ChosenModel {
  std::filesystem::path packed;
  std::string name;  // to show: of the folder, the repository, or "Tern"
  bool is_demo = false;
};

// Packs if it has to; says so in `log`, and shows a progress bar on a terminal.
Result<ChosenModel> choose_model(FileSystem& files, const ModelChoice& choice, const Places& places,
                                 LogSink& log);

// The snapshot of "org/name" in a hub cache: models--org--name/snapshots/COMMIT, where refs/main names the commit.
// not_found says which places were looked at; a name that is none is invalid_argument.
Result<std::filesystem::path> find_in_hub_caches(FileSystem& files, const std::string& repository,
                                                 const std::vector<std::filesystem::path>& hub_caches);

}  // namespace moeflux::cli
