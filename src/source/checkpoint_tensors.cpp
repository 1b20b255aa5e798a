#include "source/checkpoint_tensors.h"

#include <fmt/format.h>

#include <iterator>
#include <set>

#include "base/printable.h"
#include "base/sizes.h"
#include "source/safetensors/safetensors.h"
#include "source/safetensors/shard_index.h"

namespace moeflux {
namespace {

// Bounds the memory for headers, however many shards there are.
class HeaderBudget {
 public:
  Status spend(std::uint64_t bytes, const std::filesystem::path& path) {
    if (bytes > left_)
      return Error{ErrorCode::corrupt_data,
                   fmt::format("{}: the headers of all shards together exceed the limit of {} bytes",
                               path.string(), kMaxHeaderBytesOfSource)};
    left_ -= bytes;
    return {};
  }

 private:
  std::uint64_t left_ = kMaxHeaderBytesOfSource;
};

Status add_shard(FileSystem& files, const std::filesystem::path& path, TensorCatalog& catalog,
                 std::vector<TensorEntry>& tensors, HeaderBudget& budget, Notes& notes) {
  MF_TRY(auto file, files.open_read(path));
  const FileId id = catalog.add_file(std::move(file));
  MF_TRY(SafetensorsHeader header, read_safetensors_header(catalog.file(id), id));
  MF_TRY_STATUS(budget.spend(header.header_bytes, path));
  if (header.tensors.size() > kMaxTensorsInSource - tensors.size())
    return Error{ErrorCode::corrupt_data, fmt::format("{}: all shards together have more than {} tensors",
                                                      path.string(), kMaxTensorsInSource)};
  if (header.unclaimed_bytes > 0)
    notes.push_back(fmt::format("{}: {} of data belong to no tensor", path.filename().string(),
                                human_bytes(header.unclaimed_bytes)));
  tensors.insert(tensors.end(), std::move_iterator(header.tensors.begin()),
                 std::move_iterator(header.tensors.end()));
  return {};
}

Result<std::set<std::string>> shard_names(std::string_view index, const std::string& what) {
  std::set<std::string, std::less<>> seen;
  MF_TRY_STATUS(visit_weight_map(index, what, [&](std::string_view, std::string_view file) -> Status {
    if (seen.contains(file)) return {};
    if (seen.size() == kMaxShards)
      return Error{ErrorCode::corrupt_data, fmt::format("{}: names more than {} shards", what, kMaxShards)};
    seen.emplace(file);
    return {};
  }));
  return std::set<std::string>(seen.begin(), seen.end());
}

Status check_against_index(std::string_view index, const std::string& what, const TensorCatalog& catalog,
                           Notes& notes) {
  std::vector<std::string> files;
  for (std::uint32_t i = 0; i < catalog.file_count(); ++i)
    files.push_back(catalog.file(FileId(i)).path().filename().string());
  std::size_t listed = 0;
  MF_TRY_STATUS(visit_weight_map(index, what, [&](std::string_view name, std::string_view file) -> Status {
    const TensorEntry* tensor = catalog.find(name);
    if (tensor == nullptr)
      return Error{ErrorCode::not_found, fmt::format("{}: tensor '{}' should be in {}, but is not there",
                                                     what, printable(name), file)};
    if (++listed > catalog.all().size())  // more entries than tensors, all of which exist: some are repeated
      return Error{ErrorCode::corrupt_data,
                   fmt::format("{}: lists tensors twice, '{}' or others before it", what, printable(name))};
    const std::string& found = files[tensor->bytes.file.index()];
    if (found != file)
      return Error{ErrorCode::corrupt_data, fmt::format("{}: tensor '{}' should be in {}, but is in {}", what,
                                                        printable(name), file, found)};
    return {};
  }));
  if (listed < catalog.all().size())
    notes.push_back(fmt::format("{}: {} tensors of the shards are not in the index", what,
                                catalog.all().size() - listed));
  return {};
}

}  // namespace

Result<TensorCatalog> open_checkpoint_tensors(FileSystem& files, const std::filesystem::path& directory,
                                              Notes& notes) {
  TensorCatalog catalog;
  std::vector<TensorEntry> tensors;
  HeaderBudget budget;
  const std::filesystem::path index_path = directory / "model.safetensors.index.json";
  MF_TRY(const bool sharded, files.exists(index_path));
  if (!sharded) {
    MF_TRY_STATUS(add_shard(files, directory / "model.safetensors", catalog, tensors, budget, notes));
    MF_TRY_STATUS(catalog.add_tensors(std::move(tensors)));
    return catalog;
  }
  const std::string what = index_path.string();
  std::set<std::string> shards;
  {  // the index is read twice, so that its text and the headers are never in memory together
    MF_TRY(const std::string index, files.read_text(index_path, kMaxIndexBytes));
    MF_TRY(shards, shard_names(index, what));
  }
  for (const std::string& shard : shards)
    MF_TRY_STATUS(add_shard(files, directory / shard, catalog, tensors, budget, notes));
  MF_TRY_STATUS(catalog.add_tensors(std::move(tensors)));
  MF_TRY(const std::string index, files.read_text(index_path, kMaxIndexBytes));
  MF_TRY_STATUS(check_against_index(index, what, catalog, notes));
  return catalog;
}

}  // namespace moeflux
