#pragma once
// A new directory that appears complete or not at all.
//
// begin() makes an empty NAME.partial/ (and removes what a killed process left there), the caller fills it,
// and commit() syncs every file and directory created here, renames the directory to NAME and syncs its
// parent. An existing NAME is an error, never replaced. If the object is destroyed before the rename, it
// removes the partial directory with its contents.
//
// Owns the files that create() returns. The FileSystem must outlive it. One thread at a time, and one writer
// per NAME at a time.

#include <filesystem>
#include <memory>
#include <vector>

#include "base/result.h"
#include "io/file_system.h"
#include "io/partial_file.h"

namespace moeflux {

class AtomicDirectory {
 public:
  // `invalid_argument` if something is at `path` already; then nothing has changed.
  static Result<std::unique_ptr<AtomicDirectory>> begin(FileSystem& files, const std::filesystem::path& path);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  // Where to write until the commit: NAME.partial. The caller must sync what it writes there without create()
  // and make_directory().
  const std::filesystem::path& path() const { return name_.partial; }

  // Creates a file in the directory. It stays open until commit(), which syncs it and fails if an append to
  // it has failed. The pointer is valid until commit() or the end of this object. `name` is relative
  // ("a.bin", "experts/a.bin") and used once.
  Result<WriteFile*> create(const std::filesystem::path& name);

  // Creates a subdirectory, which commit() syncs.
  Status make_directory(const std::filesystem::path& name);

  // Call it once, last. After an error there is no NAME, with one exception: if syncing the parent fails,
  // NAME exists and is complete, but may not survive a power loss.
  Status commit();

 private:
  AtomicDirectory(FileSystem& files, AtomicName name);
  Result<std::filesystem::path> inside(const std::filesystem::path& name) const;
  Status sync_contents();

  FileSystem& files_;
  const AtomicName name_;
  std::vector<std::unique_ptr<PartialFile>> created_;
  std::vector<std::filesystem::path> directories_;  // created subdirectories, outer before inner
  bool is_committed_ = false;
  bool is_renamed_ = false;
};

}  // namespace moeflux
