#include "io/atomic_file.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/check.h"

namespace moeflux {

Result<std::unique_ptr<AtomicFile>> AtomicFile::begin(FileSystem& files, const std::filesystem::path& path) {
  if (!path.has_filename()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("cannot write '{}': expected the path of a file", path.native())};
  }
  MF_TRY(AtomicName name, atomic_name(path));
  Result<std::unique_ptr<WriteFile>> partial = files.create(name.partial);
  if (!partial) return while_writing(name, std::move(partial).error()).error();
  return std::unique_ptr<AtomicFile>(new AtomicFile(files, std::move(name), *std::move(partial)));
}

AtomicFile::AtomicFile(FileSystem& files, AtomicName name, std::unique_ptr<WriteFile> partial)
    : WriteFile(name.path),
      files_(files),
      name_(std::move(name)),
      partial_(std::make_unique<PartialFile>(std::move(partial))) {}

AtomicFile::~AtomicFile() {
  if (is_renamed_) return;
  partial_.reset();
  (void)files_.remove_all(name_.partial);  // an error cannot be returned; the next begin() truncates the file
}

Status AtomicFile::append(std::span<const std::byte> bytes) {
  MF_REQUIRE(partial_, "append() is not called after commit()");
  return partial_->append(bytes);
}

Status AtomicFile::sync() {
  MF_REQUIRE(partial_, "sync() is not called after commit()");
  return partial_->sync();
}

Status AtomicFile::commit() {
  MF_REQUIRE(partial_, "commit() is called once");
  const std::unique_ptr<PartialFile> partial = std::move(partial_);
  MF_TRY_STATUS(while_writing(name_, partial->sync()));
  MF_TRY_STATUS(while_writing(name_, files_.rename(name_.partial, name_.path)));
  is_renamed_ = true;
  return sync_new_name(files_, name_);
}

Status write_file_atomically(FileSystem& files, const std::filesystem::path& path,
                             std::span<const std::byte> bytes) {
  MF_TRY(const std::unique_ptr<AtomicFile> file, AtomicFile::begin(files, path));
  MF_TRY_STATUS(file->append(bytes));
  return file->commit();
}

}  // namespace moeflux
