#pragma once
// What AtomicFile and AtomicDirectory share: a file or directory that does not have its final name yet.
//
// NAME is written as NAME.partial beside it, and renamed when it is complete and on the disk. A PartialFile
// owns the file that it wraps. Its first failure is final: after a failed write, free space or a second fsync
// cannot make a file with a hole look complete, because fsync reports an error only once. One thread at a
// time.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

// The final path of NAME, and its path until it is complete.
struct AtomicName {
  std::filesystem::path path;       // NAME, without a trailing slash
  std::filesystem::path partial;    // NAME.partial
  std::filesystem::path directory;  // holds both; never empty
};

// `invalid_argument` if the path has no last component ("", "/", ".", "..").
Result<AtomicName> atomic_name(const std::filesystem::path& path);

// Adds "writing 'NAME': " to the message of an error.
Status while_writing(const AtomicName& name, Status status);

// Syncs the directory after the rename. The error says that NAME is complete, but may not survive a power
// loss.
Status sync_new_name(FileSystem& files, const AtomicName& name);

class PartialFile final : public WriteFile {
 public:
  explicit PartialFile(std::unique_ptr<WriteFile> file) : WriteFile(file->path()), file_(std::move(file)) {}

  Status append(std::span<const std::byte> bytes) override;
  Status sync() override;

 private:
  Status keep_failure(Status status);

  std::unique_ptr<WriteFile> file_;
  std::optional<Error> failure_;
};

}  // namespace moeflux
