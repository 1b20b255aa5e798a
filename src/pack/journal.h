#pragma once
// What of a packed model is finished: the memory of a pack that was interrupted.
//
// The journal is a small file beside the packed files, one line each: a header that says which pack this is, then one
// line for every finished file with its length and what the manifest will need to know of it. It is replaced
// atomically, after the file that it speaks of is on the disk under its own name. A file counts as finished only if
// its line is there and its length agrees; anything else is written again. One thread at a time.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "io/file_system.h"

namespace moeflux {

inline constexpr std::string_view kJournalName = "pack.journal";

struct FinishedFile {
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> checksums;  // of its tensors or records, in order
  std::vector<Digest> digests;  // of the source's bytes, in the same order (experts: one for all three)
  friend bool operator==(const FinishedFile&, const FinishedFile&) = default;
};

class Journal {
 public:
  // Reads the journal in `directory`, if there is one, and writes nothing. One of another pack (`identity` differs) is
  // `invalid_argument`: two packs are never mixed. A line that does not parse was not finished.
  static Result<Journal> open(FileSystem& files, const std::filesystem::path& directory,
                              const Digest& identity);

  // Puts a journal where there is none yet; returns once it is on the disk.
  Status begin();

  // What is known of `name`, if the file is there with its length.
  Result<std::optional<FinishedFile>> finished(const std::string& name);

  // Records a file that is on the disk; returns once the journal is too.
  Status add(const std::string& name, FinishedFile file);

  // The pack is complete: the journal is removed. Should it come back with the power, it does no harm.
  Status remove();

 private:
  Journal(FileSystem& files, std::filesystem::path directory, const Digest& identity)
      : files_(&files), directory_(std::move(directory)), identity_(identity) {}
  std::string text() const;
  Status write() const;

  FileSystem* files_;
  std::filesystem::path directory_;
  Digest identity_;
  bool on_disk_ = false;
  std::map<std::string, FinishedFile> entries_;
};

}  // namespace moeflux
