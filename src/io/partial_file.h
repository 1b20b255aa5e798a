#pragma once
// What is being written and has not got its name yet: the parts that AtomicFile and AtomicDirectory share.
//
// The file or directory NAME is written as NAME.partial beside it and renamed when it is whole and on the
// disk. A PartialFile owns the file that it wraps, and its first failure is final: a full disk that empties
// again, or an fsync that reports its error only once, cannot make a file with a hole look whole.
// One thread at a time.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

// Where NAME is, and where it is until it is whole.
struct AtomicName {
  std::filesystem::path path;       // NAME, without a slash at its end
  std::filesystem::path partial;    // NAME.partial
  std::filesystem::path directory;  // that holds both; never empty
};

// A path without a last name ("", "/", ".", "..") is `invalid_argument`.
Result<AtomicName> atomic_name(const std::filesystem::path& path);

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
