#pragma once
// A file that appears whole or not at all.
//
// begin() opens NAME.partial, appends go there, and commit() gives it its name: sync, rename, sync of the
// directory. Until the rename whatever was called NAME stays as it was; dropped before that, or after a
// failure, the partial file is removed. What a killed process leaves is a NAME.partial, which the next
// writer empties.
//
// A WriteFile, whose path() is NAME. After any failed append or sync, commit() fails too. The FileSystem
// outlives it. One thread at a time, and one writer of a NAME at a time.

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

  // The last call, once. An error means that NAME is what it was before, except for a failure to sync the
  // directory: NAME is then the new file, whole, and a loss of power may bring back the old one.
  Status commit();

 private:
  AtomicFile(FileSystem& files, AtomicName name, std::unique_ptr<WriteFile> partial);

  FileSystem& files_;
  const AtomicName name_;
  std::unique_ptr<PartialFile> partial_;  // empty once commit() was called
  bool has_its_name_ = false;
};

// The whole file at once.
Status write_file_atomically(FileSystem& files, const std::filesystem::path& path,
                             std::span<const std::byte> bytes);

}  // namespace moeflux
