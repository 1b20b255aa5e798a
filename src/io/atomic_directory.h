#pragma once
// A new directory that appears whole or not at all.
//
// begin() makes an empty NAME.partial/ (what a killed run left there is removed), the caller fills it, and
// commit() gives it its name: every file and directory made here is synced, the directory is renamed and its
// parent synced. A NAME that exists is refused, never replaced. Dropped before the rename, or after a
// failure, the partial directory is removed with all that is in it.
//
// It owns the files that create() hands out. The FileSystem outlives it. One thread at a time, and one
// writer of a NAME at a time.

#include <filesystem>
#include <memory>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"
#include "io/partial_file.h"

namespace moeflux {

class AtomicDirectory {
 public:
  // `invalid_argument` when something is at `path` already; nothing has changed then.
  static Result<std::unique_ptr<AtomicDirectory>> begin(FileSystem& files, const std::filesystem::path& path);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  // Where to write until the commit: NAME.partial. What is written there other than through create() and
  // make_directory() is synced by who writes it.
  const std::filesystem::path& path() const { return name_.partial; }

  // A new file in the directory, open until the commit, which syncs it and fails if an append to it has
  // failed. The pointer is good until commit() or the end of this object. `name` is relative ("a.bin",
  // "experts/a.bin") and used once.
  Result<WriteFile*> create(const std::filesystem::path& name);

  // A directory in the directory, synced by the commit.
  Status make_directory(const std::filesystem::path& name);

  // The last call, once. An error means that there is no NAME, except for a failure to sync the parent:
  // NAME is then there, whole, and a loss of power may take it away.
  Status commit();

 private:
  AtomicDirectory(FileSystem& files, AtomicName name);
  Result<std::filesystem::path> inside(const std::filesystem::path& name) const;
  Status make_durable();

  FileSystem& files_;
  const AtomicName name_;
  std::vector<std::unique_ptr<PartialFile>> created_;
  std::vector<std::filesystem::path> directories_;  // made in it, outer before inner
  bool committed_ = false;
  bool has_its_name_ = false;
};

}  // namespace moeflux
