#pragma once
// A file that appears complete or not at all.
//
// begin() creates NAME.partial, append() writes to it, and commit() syncs it, renames it to NAME and syncs
// the directory. An existing NAME is unchanged until the rename. If the object is destroyed before the
// rename, it removes the partial file. A killed process leaves NAME.partial, which the next writer truncates.
//
// A WriteFile whose path() is NAME. After a failed append or sync, commit() fails too. The FileSystem must
// outlive it. One thread at a time, and one writer per NAME at a time.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "base/result.h"
#include "io/file_system.h"
#include "io/partial_file.h"

namespace moeflux {

class AtomicFile final : public WriteFile {
 public:
  static Result<std::unique_ptr<AtomicFile>> begin(FileSystem& files, const std::filesystem::path& path);
  ~AtomicFile() override;

  Status append(std::span<const std::byte> bytes) override;
  Status sync() override;

  // Call it once, last. After an error NAME is what it was before, with one exception: if syncing the
  // directory fails, NAME is the new file, complete, but a power loss may bring back the old one.
  Status commit();

 private:
  AtomicFile(FileSystem& files, AtomicName name, std::unique_ptr<WriteFile> partial);

  FileSystem& files_;
  const AtomicName name_;
  std::unique_ptr<PartialFile> partial_;  // null after commit()
  bool is_renamed_ = false;
};

// Writes `bytes` as the whole file.
Status write_file_atomically(FileSystem& files, const std::filesystem::path& path,
                             std::span<const std::byte> bytes);

}  // namespace moeflux
