#include "io/atomic_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace moeflux {
namespace {

Status require_absent(FileSystem& files, const std::filesystem::path& path) {
  MF_TRY(const bool exists, files.exists(path));
  if (!exists) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("'{}' already exists; remove it or choose another name", path.native())};
}

Status make_empty_directory(FileSystem& files, const std::filesystem::path& directory) {
  MF_TRY_STATUS(files.remove_all(directory));
  return files.make_directory(directory);
}

}  // namespace

Result<std::unique_ptr<AtomicDirectory>> AtomicDirectory::begin(FileSystem& files,
                                                                const std::filesystem::path& path) {
  MF_TRY(AtomicName name, atomic_name(path));
  MF_TRY_STATUS(require_absent(files, name.path));
  MF_TRY_STATUS(while_writing(name, make_empty_directory(files, name.partial)));
  return std::unique_ptr<AtomicDirectory>(new AtomicDirectory(files, std::move(name)));
}

AtomicDirectory::AtomicDirectory(FileSystem& files, AtomicName name)
    : files_(files), name_(std::move(name)) {}

AtomicDirectory::~AtomicDirectory() {
  if (is_renamed_) return;
  created_.clear();
  (void)files_.remove_all(name_.partial);  // an error cannot be returned; the next begin() removes it
}

Result<WriteFile*> AtomicDirectory::create(const std::filesystem::path& name) {
  MF_REQUIRE(!is_committed_, "create() is not called after commit()");
  MF_TRY(const std::filesystem::path path, inside(name));
  if (std::any_of(created_.begin(), created_.end(), [&](const auto& file) { return file->path() == path; })) {
    return Error{ErrorCode::invalid_argument, fmt::format("'{}' was already created", path.native())};
  }
  MF_TRY(std::unique_ptr<WriteFile> file, files_.create(path));
  created_.push_back(std::make_unique<PartialFile>(std::move(file)));
  return created_.back().get();
}

Status AtomicDirectory::make_directory(const std::filesystem::path& name) {
  MF_REQUIRE(!is_committed_, "make_directory() is not called after commit()");
  MF_TRY(std::filesystem::path path, inside(name));
  MF_TRY_STATUS(files_.make_directory(path));
  directories_.push_back(std::move(path));
  return {};
}

Result<std::filesystem::path> AtomicDirectory::inside(const std::filesystem::path& name) const {
  const std::filesystem::path normal = name.lexically_normal();
  if (!normal.is_relative() || !normal.has_filename() || normal == "." || *normal.begin() == "..") {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("cannot create '{}' in '{}': expected a relative path inside it", name.native(),
                             name_.path.native())};
  }
  return name_.partial / normal;
}

Status AtomicDirectory::commit() {
  MF_REQUIRE(!is_committed_, "commit() is called once");
  is_committed_ = true;
  MF_TRY_STATUS(while_writing(name_, sync_contents()));
  MF_TRY_STATUS(require_absent(files_, name_.path));  // rename() would replace an empty directory
  MF_TRY_STATUS(while_writing(name_, files_.rename(name_.partial, name_.path)));
  is_renamed_ = true;
  return sync_new_name(files_, name_);
}

// Syncs files before the directories that name them, and inner directories before outer ones.
Status AtomicDirectory::sync_contents() {
  for (const auto& file : created_) MF_TRY_STATUS(file->sync());
  created_.clear();
  for (auto directory = directories_.rbegin(); directory != directories_.rend(); ++directory) {
    MF_TRY_STATUS(files_.sync_directory(*directory));
  }
  return files_.sync_directory(name_.partial);
}

}  // namespace moeflux
