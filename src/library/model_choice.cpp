#include "library/model_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/hash.h"
#include "base/printable.h"
#include "base/sizes.h"
#include "io/file_lock.h"
#include "model/packed_format.h"
#include "model/packed_model.h"
#include "pack/pack.h"
#include "source/source_model.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDemoName = "Tern";

Status make_directories(FileSystem& files, const fs::path& directory) {
  fs::path so_far;
  for (const fs::path& part : directory) {
    so_far /= part;
    MF_TRY(const bool is_there, files.exists(so_far));
    if (!is_there) MF_TRY_STATUS(files.make_directory(so_far));
  }
  return {};
}

// Digest of the checkpoint's path and of its files' names and sizes.
Result<Digest> digest_of_checkpoint(FileSystem& files, const fs::path& directory) {
  DigestStream digest;
  // A new format version changes the digest, so models packed by an older moeflux are packed again.
  digest.add(fmt::format("format version {}\n", kPackedFormatVersion));
  std::error_code ignored;
  const fs::path real = fs::weakly_canonical(directory, ignored);
  digest.add(real.empty() ? directory.native() : real.native());
  MF_TRY(const std::vector<std::string> names, files.list(directory));
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    const Result<FileInfo> info = files.info(directory / name);
    if (!info || info->kind != FileKind::regular) continue;
    digest.add(fmt::format("\n{} {}", name, info->size_bytes));
  }
  return digest.value();
}

Status pack_into(FileSystem& files, const SourceModel& source, const fs::path& destination, LogSink& log,
                 PackObserver progress) {
  log.write(LogLevel::info,
            fmt::format("packing {} into {}, once", source.path().native(), destination.native()));
  const unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  MF_TRY_STATUS(pack(source, files, files, destination, {{}, jobs}, progress));
  return {};
}

fs::path cached_models(const Places& places) { return places.cache / "moeflux" / "models"; }

// `opened`: the source, if the caller has opened it; null: it is opened only if it has to be packed.
// `name`: for the name of the folder in the cache.
Result<fs::path> packed_in_cache(FileSystem& files, const fs::path& source, const SourceModel* opened,
                                 std::string_view name, const Places& places, LogSink& log,
                                 PackObserver progress) {
  if (places.cache.empty())
    return Error{
        ErrorCode::not_found,
        fmt::format("'{}' is not packed, and there is no cache to pack it into: set XDG_CACHE_HOME or HOME, "
                    "or run 'moeflux pack SRC DST' and use -m DST",
                    source.native())};
  MF_TRY(const Digest digest, digest_of_checkpoint(files, source));
  const fs::path models = cached_models(places);
  std::string hex;
  for (const std::uint8_t byte : std::span(digest.bytes).first(6)) hex += fmt::format("{:02x}", byte);
  MF_TRY_STATUS(make_directories(files, models));
  // Any name matches: -hf and -m may name the same files.
  MF_TRY(const std::vector<std::string> names, files.list(models));
  for (const std::string& there : names) {
    if (!there.ends_with("-" + hex)) continue;
    MF_TRY(const bool is_packed, PackedModel::is_at(files, models / there));
    if (is_packed) return models / there;
  }
  fs::path destination = models / fmt::format("{}-{}", name, hex);
  fs::path lock_path = destination;
  lock_path += ".lock";
  MF_TRY(const FileLock lock, FileLock::acquire(lock_path));
  MF_TRY(const bool is_packed_now, PackedModel::is_at(files, destination));
  if (is_packed_now) return destination;
  if (opened != nullptr) {
    MF_TRY_STATUS(pack_into(files, *opened, destination, log, progress));
  } else {
    MF_TRY(const SourceModel model, SourceModel::open(files, source));
    MF_TRY_STATUS(pack_into(files, model, destination, log, progress));
  }
  return destination;
}

Result<fs::path> find_demo(FileSystem& files, const Places& places) {
  std::string looked_at;
  for (const fs::path& source : places.demo_sources) {
    MF_TRY(const bool is_there, files.exists(source / "config.json"));
    if (is_there) return source;
    looked_at += fmt::format("{}'{}'", looked_at.empty() ? "" : ", ", source.native());
  }
  return Error{ErrorCode::not_found,
               fmt::format("the bundled demo model is not in {}; name a model with -m or -hf", looked_at)};
}

std::string cache_label(const fs::path& path) {
  const fs::path clean = path.lexically_normal();
  std::string name =
      clean.has_filename() ? clean.filename().string() : clean.parent_path().filename().string();
  return name.empty() || name == "." || name == ".." ? "model" : name;
}

bool is_repository_name(std::string_view name) {
  const auto is_fine = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos || name.find('/', slash + 1) != std::string_view::npos) return false;
  for (const std::string_view part : {name.substr(0, slash), name.substr(slash + 1)})
    if (part.empty() || part.size() > 96 || part.find("..") != part.npos || part[0] == '.' ||
        !std::ranges::all_of(part, is_fine))
      return false;
  return true;
}

// The snapshot that refs/main names, or the only snapshot.
Result<std::optional<fs::path>> snapshot_of(FileSystem& files, const fs::path& repository) {
  MF_TRY(const bool has_ref, files.exists(repository / "refs" / "main"));
  if (has_ref) {
    MF_TRY(std::string commit, files.read_text(repository / "refs" / "main", 4096));
    while (!commit.empty() && (commit.back() == '\n' || commit.back() == ' ')) commit.pop_back();
    if (commit.empty() || !std::ranges::all_of(commit, [](unsigned char c) { return std::isxdigit(c) != 0; }))
      return Error{ErrorCode::corrupt_data,
                   fmt::format("{}: expected a commit's digits, found '{}'",
                               (repository / "refs" / "main").native(), printable(commit))};
    const fs::path snapshot = repository / "snapshots" / commit;
    MF_TRY(const bool is_there, files.exists(snapshot / "config.json"));
    if (is_there) return std::optional(snapshot);
  }
  MF_TRY(const bool has_snapshots, files.exists(repository / "snapshots"));
  if (!has_snapshots) return std::optional<fs::path>();
  MF_TRY(const std::vector<std::string> commits, files.list(repository / "snapshots"));
  std::vector<fs::path> whole;
  for (const std::string& commit : commits) {
    MF_TRY(const bool is_there, files.exists(repository / "snapshots" / commit / "config.json"));
    if (is_there) whole.push_back(repository / "snapshots" / commit);
  }
  if (whole.size() == 1) return std::optional(whole[0]);
  return std::optional<fs::path>();
}

}  // namespace

Places find_places(FunctionRef<const char*(const char*)> variable, const fs::path& program) {
  const auto value = [&](const char* name) {
    const char* const text = variable(name);
    return fs::path(text == nullptr ? "" : text);
  };
  Places places;
  const fs::path home = value("HOME");
  places.cache = value("XDG_CACHE_HOME");
  if (places.cache.empty() && !home.empty()) places.cache = home / ".cache";
  const auto add_hub = [&](const fs::path& base, const char* below) {
    if (!base.empty()) places.hub_caches.push_back(*below == '\0' ? base : base / below);
  };
  add_hub(value("HF_HUB_CACHE"), "");
  add_hub(value("HUGGINGFACE_HUB_CACHE"), "");
  add_hub(value("HF_HOME"), "hub");
  add_hub(value("XDG_CACHE_HOME"), "huggingface/hub");
  if (!home.empty()) add_hub(home / ".cache", "huggingface/hub");

  std::error_code ignored;
  const fs::path real = fs::weakly_canonical(program, ignored);
  places.demo_sources.push_back(real.parent_path().parent_path() / "share" / "moeflux" / "models" / "tern");
  // In a build folder of a checkout: build/PRESET/bin/moeflux.
  for (fs::path above = real.parent_path(); above.has_relative_path(); above = above.parent_path())
    places.demo_sources.push_back(above / "models" / "tern");
  return places;
}

Result<fs::path> find_in_hub_caches(FileSystem& files, const std::string& repository,
                                    const std::vector<fs::path>& hub_caches) {
  if (!is_repository_name(repository))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("-hf takes ORG/NAME, found '{}'", printable(repository))};
  std::string folder = "models--" + repository;
  folder.replace(folder.find('/'), 1, "--");
  std::string looked_at;
  for (const fs::path& cache : hub_caches) {
    MF_TRY(const std::optional<fs::path> snapshot, snapshot_of(files, cache / folder));
    if (snapshot) return *snapshot;
    looked_at += fmt::format("{}'{}'", looked_at.empty() ? "" : ", ", (cache / folder).native());
  }
  return Error{
      ErrorCode::not_found,
      fmt::format("'{}' is not in the local Hugging Face cache ({}); download it first, for example with "
                  "'hf download {}'",
                  repository, looked_at.empty() ? "there is none" : looked_at, repository)};
}

fs::path folder_of_models(FileSystem& files, const Places& places) {
  const Result<FileInfo> cached = files.info(cached_models(places));
  if (!places.cache.empty() && cached && cached->kind == FileKind::directory) return cached_models(places);
  return ".";
}

Result<ChosenModel> choose_model(FileSystem& files, const ModelChoice& choice, const Places& places,
                                 LogSink& log, PackObserver progress) {
  if (!choice.model.empty() && !choice.hf_repo.empty())
    return Error{ErrorCode::invalid_argument, "expected one of -m and -hf, found both"};
  ChosenModel chosen;
  if (!choice.model.empty()) {
    chosen.name = cache_label(choice.model);
    MF_TRY(const bool is_packed, PackedModel::is_at(files, choice.model));
    if (is_packed) {
      chosen.packed = choice.model;
      return chosen;
    }
    MF_TRY(const SourceModel source, SourceModel::open(files, choice.model));
    MF_TRY(chosen.packed,
           packed_in_cache(files, source.path(), &source, cache_label(source.path()), places, log, progress));
    return chosen;
  }
  if (!choice.hf_repo.empty()) {
    MF_TRY(const fs::path source, find_in_hub_caches(files, choice.hf_repo, places.hub_caches));
    chosen.name = choice.hf_repo;
    std::string folder = choice.hf_repo;
    folder.replace(folder.find('/'), 1, "--");
    MF_TRY(chosen.packed, packed_in_cache(files, source, nullptr, folder, places, log, progress));
    return chosen;
  }
  MF_TRY(const fs::path demo, find_demo(files, places));
  chosen.name = kDemoName;
  chosen.is_demo = true;
  MF_TRY(chosen.packed, packed_in_cache(files, demo, nullptr, "tern", places, log, progress));
  return chosen;
}

}  // namespace moeflux
