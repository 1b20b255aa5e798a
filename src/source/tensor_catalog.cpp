#include "source/tensor_catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/printable.h"

namespace moeflux {
namespace {

bool name_before(const TensorEntry& tensor, std::string_view name) { return tensor.name < name; }

}  // namespace

FileId TensorCatalog::add_file(std::unique_ptr<ReadFile> file) {
  files_.push_back(std::move(file));
  return FileId(static_cast<std::uint32_t>(files_.size() - 1));
}

Status TensorCatalog::add_tensors(std::vector<TensorEntry> tensors) {
  if (tensors.size() > kMaxTensorsInSource - tensors_.size())
    return Error{ErrorCode::corrupt_data,
                 fmt::format("the source has more than {} tensors", kMaxTensorsInSource)};
  for (const TensorEntry& tensor : tensors)
    MF_REQUIRE(tensor.bytes.file.index() < files_.size(), "a tensor's file is added before it");
  const auto by_name = [](const TensorEntry& a, const TensorEntry& b) {
    const auto order = a.name <=> b.name;
    return order == 0 ? a.bytes.file < b.bytes.file : order < 0;
  };
  std::sort(tensors.begin(), tensors.end(), by_name);
  if (tensors_.empty()) tensors_.swap(tensors);  // the common case, without a second copy of the table
  const auto middle = static_cast<std::ptrdiff_t>(tensors_.size());
  tensors_.insert(tensors_.end(), std::move_iterator(tensors.begin()), std::move_iterator(tensors.end()));
  std::inplace_merge(tensors_.begin(), tensors_.begin() + middle, tensors_.end(), by_name);
  const auto twin = std::adjacent_find(tensors_.begin(), tensors_.end(),
                                       [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twin != tensors_.end())
    return Error{ErrorCode::corrupt_data,
                 fmt::format("tensor '{}' is in {} and again in {}", printable(twin->name),
                             file(twin->bytes.file).path().string(),
                             file(std::next(twin)->bytes.file).path().string())};
  return {};
}

std::optional<std::size_t> TensorCatalog::index_of(std::string_view name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name, name_before);
  if (at == tensors_.end() || at->name != name) return std::nullopt;
  return static_cast<std::size_t>(at - tensors_.begin());
}

const TensorEntry* TensorCatalog::find(std::string_view name) const {
  const auto index = index_of(name);
  return index ? &tensors_[*index] : nullptr;
}

std::span<const TensorEntry> TensorCatalog::with_prefix(std::string_view prefix) const {
  const auto begin = std::lower_bound(tensors_.begin(), tensors_.end(), prefix, name_before);
  const auto end = std::partition_point(begin, tensors_.end(),
                                        [&](const TensorEntry& t) { return t.name.starts_with(prefix); });
  return {begin, end};
}

}  // namespace moeflux
