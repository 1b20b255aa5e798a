#include "io/atomic_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace moeflux {
namespace {

std::string writing(const std::filesystem::path& path) { return fmt::format("writing '{}'", path.native()); }

Status require_absent(FileSystem& files, const std::filesystem::path& path) {
  MF_TRY(const bool exists, files.exists(path));
  if (!exists) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("'{}' exists already; remove it or choose another name", path.native())};
}

Status make_empty(FileSystem& files, const std::filesystem::path& directory) {
  MF_TRY_STATUS(files.remove_all(directory));
  return files.make_directory(directory);
}

}  // namespace

Result<std::unique_ptr<AtomicDirectory>> AtomicDirectory::begin(FileSystem& files,
                                                                const std::filesystem::path& path) {
  MF_TRY(AtomicName name, atomic_name(path));
  MF_TRY_STATUS(require_absent(files, name.path));
  if (Status made = make_empty(files, name.partial); !made) {
    return std::move(made).error().during(writing(name.path));
  }
  return std::unique_ptr<AtomicDirectory>(new AtomicDirectory(files, std::move(name)));
}

AtomicDirectory::AtomicDirectory(FileSystem& files, AtomicName name)
    : files_(files), name_(std::move(name)) {}

AtomicDirectory::~AtomicDirectory() {
  if (has_its_name_) return;
  created_.clear();
  (void)files_.remove_all(name_.partial);  // nobody is left to tell; the next run removes it
}

Result<WriteFile*> AtomicDirectory::create(const std::filesystem::path& name) {
  MF_REQUIRE(!committed_, "nothing is created in a directory after its commit");
  MF_TRY(const std::filesystem::path path, inside(name));
  if (std::any_of(created_.begin(), created_.end(), [&](const auto& file) { return file->path() == path; })) {
    return Error{ErrorCode::invalid_argument, fmt::format("'{}' was created already", path.native())};
  }
  MF_TRY(std::unique_ptr<WriteFile> file, files_.create(path));
  created_.push_back(std::make_unique<PartialFile>(std::move(file)));
  return created_.back().get();
}

Status AtomicDirectory::make_directory(const std::filesystem::path& name) {
  MF_REQUIRE(!committed_, "nothing is created in a directory after its commit");
  MF_TRY(std::filesystem::path path, inside(name));
  MF_TRY_STATUS(files_.make_directory(path));
  directories_.push_back(std::move(path));
  return {};
}

Result<std::filesystem::path> AtomicDirectory::inside(const std::filesystem::path& name) const {
  const std::filesystem::path normal = name.lexically_normal();
  if (!normal.is_relative() || !normal.has_filename() || normal == "." || *normal.begin() == "..") {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("cannot create '{}' in '{}': expected a name inside it", name.native(),
                             name_.path.native())};
  }
  return name_.partial / normal;
}

Status AtomicDirectory::commit() {
  MF_REQUIRE(!committed_, "a directory is committed once");
  committed_ = true;
  if (Status durable = make_durable(); !durable)
    return std::move(durable).error().during(writing(name_.path));
  MF_TRY_STATUS(require_absent(files_, name_.path));  // a rename would replace an empty directory
  if (Status renamed = files_.rename(name_.partial, name_.path); !renamed) {
    return std::move(renamed).error().during(writing(name_.path));
  }
  has_its_name_ = true;
  if (Status synced = files_.sync_directory(name_.directory); !synced) {
    return std::move(synced).error().during(
        fmt::format("'{}' is written, but may be lost with the power", name_.path.native()));
  }
  return {};
}

// Contents before the names that lead to them.
Status AtomicDirectory::make_durable() {
  for (const auto& file : created_) MF_TRY_STATUS(file->sync());
  created_.clear();
  for (auto directory = directories_.rbegin(); directory != directories_.rend(); ++directory) {
    MF_TRY_STATUS(files_.sync_directory(*directory));
  }
  return files_.sync_directory(name_.partial);
}

}  // namespace moeflux
