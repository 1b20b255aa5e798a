#include "library/originals.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "io/file_lock.h"
#include "pack/pack.h"
#include "pack/plan.h"
#include "source/original.h"
#include "source/source_model.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code nothing_there;
  return fs::equivalent(a, b, nothing_there);
}

// Opens the source by the folder that contains all artifacts: the tokenizer is found from there too.
Result<SourceModel> open_source(FileSystem& files, const ArtifactPaths& artifacts) {
  for (const fs::path& given : {artifacts.weights, artifacts.manifest, artifacts.experts_dir}) {
    MF_TRY(const bool there, files.exists(given));
    if (!there) return Error(ErrorCode::not_found, fmt::format("{}: does not exist", given.string()));
  }
  const fs::path folder = fs::absolute(artifacts.weights).lexically_normal().parent_path();
  for (const fs::path& directory : {folder.parent_path(), folder}) {
    MF_TRY(const auto found, find_original(files, directory));
    if (!found || !same_file(found->weights, artifacts.weights) ||
        !same_file(found->manifest, artifacts.manifest) ||
        !same_file(found->experts_root, artifacts.experts_dir))
      continue;
    MF_TRY(SourceModel source, SourceModel::open(files, directory, {.use_2bit = artifacts.use_2bit}));
    if (source.kind() == SourceKind::original_artifacts) return source;
  }
  return Error(
      ErrorCode::unsupported,
      fmt::format("{}, {} and {} are not in the folders that the original's converters use "
                  "(docs/formats/original.md); pack them first: moeflux pack",
                  artifacts.weights.string(), artifacts.manifest.string(), artifacts.experts_dir.string()));
}

// Compares everything that does not need the weights. End tokens may differ: they come from text files, which
// may have changed or gone since.
bool is_of_the_same_shape(const Manifest& packed, const SourceModel& source, const PackPlan& plan) {
  ModelConfig config = source.config();
  config.end_tokens = packed.config.end_tokens;
  return packed.source_format == name_of(source.kind()) && packed.config == config &&
         packed.resident_bytes == plan.resident_bytes && packed.expert_formats == plan.expert_formats &&
         std::ranges::equal(packed.tensors, plan.tensors,
                            [](const PackedTensor& tensor, const TensorPlan& planned) {
                              return tensor.name == planned.source->name && tensor.format == planned.format &&
                                     tensor.offset == planned.offset;
                            });
}

// The finished packed model of `source` at `packed`; nullopt if there is none yet.
Result<std::optional<PackedModel>> open_finished(FileSystem& files, const fs::path& packed,
                                                 const SourceModel& source, const PackOptions& options) {
  MF_TRY(const bool finished, PackedModel::is_at(files, packed));
  if (!finished) return std::optional<PackedModel>();
  MF_TRY(PackedModel model, PackedModel::open(files, packed));
  MF_TRY(const PackPlan plan, plan_pack(source, options));
  if (!is_of_the_same_shape(model.manifest(), source, plan))
    return Error(ErrorCode::invalid_argument,
                 fmt::format("{}: is the packed model of other artifacts; remove it", packed.string()));
  if (model.config().end_tokens.empty() && !source.config().end_tokens.empty())
    return Error(ErrorCode::invalid_argument,
                 fmt::format("{}: was packed when no end tokens were known, now there are {}; remove it",
                             packed.string(), source.config().end_tokens.size()));
  return std::optional(std::move(model));
}

}  // namespace

std::string folder_name(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

Result<PackedOriginals> pack_originals(FileSystem& files, const ArtifactPaths& artifacts,
                                       FunctionRef<void(const PackProgress&)> progress,
                                       const std::atomic<bool>* cancel) {
  MF_TRY(const SourceModel source, open_source(files, artifacts));
  MF_TRY(const bool has_4bit, files.exists(artifacts.experts_dir / kPackedExperts));
  const bool reads_4bit = has_4bit && !artifacts.use_2bit;
  const fs::path packed = artifacts.experts_dir / (reads_4bit ? kPackedOriginals : kPackedOriginals2bit);

  const PackOptions options{{}, std::max(1u, std::thread::hardware_concurrency()), {}, cancel};
  const auto finished = [&] { return open_finished(files, packed, source, options); };
  MF_TRY(std::optional<PackedModel> model, finished());
  if (model) return PackedOriginals{*std::move(model), folder_name(source.path())};
  fs::path lock_path = packed;
  lock_path += ".lock";
  MF_TRY(const FileLock lock, FileLock::acquire(lock_path));
  MF_TRY(model, finished());  // by the process that held the lock
  if (model) return PackedOriginals{*std::move(model), folder_name(source.path())};
  MF_TRY_STATUS(pack(source, files, files, packed, options, progress));
  MF_TRY(PackedModel written, PackedModel::open(files, packed));
  return PackedOriginals{std::move(written), folder_name(source.path())};
}

}  // namespace moeflux
