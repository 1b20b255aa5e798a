#include "io/partial_file.h"

#include <fmt/format.h>

namespace moeflux {

Result<AtomicName> atomic_name(const std::filesystem::path& path) {
  AtomicName name{.path = path.has_filename() ? path : path.parent_path(), .partial = {}, .directory = {}};
  const std::filesystem::path last = name.path.filename();
  if (last.empty() || last == "." || last == "..") {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("cannot write '{}': expected a path that ends in a name", path.native())};
  }
  name.partial = name.path;
  name.partial += ".partial";
  name.directory = name.path.parent_path();
  if (name.directory.empty()) name.directory = ".";
  return name;
}

Status while_writing(const AtomicName& name, Status status) {
  if (status) return status;
  return std::move(status).error().during(fmt::format("writing '{}'", name.path.native()));
}

Status sync_new_name(FileSystem& files, const AtomicName& name) {
  Status synced = files.sync_directory(name.directory);
  if (synced) return synced;
  return std::move(synced).error().during(
      fmt::format("'{}' is complete, but may not survive a power loss", name.path.native()));
}

Status PartialFile::append(std::span<const std::byte> bytes) {
  if (failure_) return *failure_;
  return keep_failure(file_->append(bytes));
}

Status PartialFile::sync() {
  if (failure_) return *failure_;
  return keep_failure(file_->sync());
}

Status PartialFile::keep_failure(Status status) {
  if (!status) failure_ = status.error();
  return status;
}

}  // namespace moeflux
