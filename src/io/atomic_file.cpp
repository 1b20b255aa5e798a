#include "io/atomic_file.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/check.h"

namespace moeflux {
namespace {

std::string writing(const std::filesystem::path& path) { return fmt::format("writing '{}'", path.native()); }

}  // namespace

Result<std::unique_ptr<AtomicFile>> AtomicFile::begin(FileSystem& files, const std::filesystem::path& path) {
  if (!path.has_filename()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("cannot write '{}': expected the path of a file", path.native())};
  }
  MF_TRY(AtomicName name, atomic_name(path));
  Result<std::unique_ptr<WriteFile>> partial = files.create(name.partial);
  if (!partial) return std::move(partial).error().during(writing(path));
  return std::unique_ptr<AtomicFile>(new AtomicFile(files, std::move(name), *std::move(partial)));
}

AtomicFile::AtomicFile(FileSystem& files, AtomicName name, std::unique_ptr<WriteFile> partial)
    : WriteFile(name.path),
      files_(files),
      name_(std::move(name)),
      partial_(std::make_unique<PartialFile>(std::move(partial))) {}

AtomicFile::~AtomicFile() {
  if (has_its_name_) return;
  partial_.reset();
  (void)files_.remove_all(name_.partial);  // nobody is left to tell; the next writer empties it
}

Status AtomicFile::append(std::span<const std::byte> bytes) {
  MF_REQUIRE(partial_, "nothing is appended to a file after its commit");
  return partial_->append(bytes);
}

Status AtomicFile::sync() {
  MF_REQUIRE(partial_, "a file is not synced after its commit");
  return partial_->sync();
}

Status AtomicFile::commit() {
  MF_REQUIRE(partial_, "a file is committed once");
  const std::unique_ptr<PartialFile> partial = std::move(partial_);
  if (Status synced = partial->sync(); !synced) return std::move(synced).error().during(writing(path()));
  if (Status renamed = files_.rename(name_.partial, name_.path); !renamed) {
    return std::move(renamed).error().during(writing(path()));
  }
  has_its_name_ = true;
  if (Status synced = files_.sync_directory(name_.directory); !synced) {
    return std::move(synced).error().during(
        fmt::format("'{}' is written, but may be lost with the power", path().native()));
  }
  return {};
}

Status write_file_atomically(FileSystem& files, const std::filesystem::path& path,
                             std::span<const std::byte> bytes) {
  MF_TRY(const std::unique_ptr<AtomicFile> file, AtomicFile::begin(files, path));
  MF_TRY_STATUS(file->append(bytes));
  return file->commit();
}

}  // namespace moeflux
