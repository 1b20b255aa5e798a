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
