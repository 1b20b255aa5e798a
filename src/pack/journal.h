#pragma once
// Records which files of a packed model are finished, so that an interrupted pack can resume.
//
// The journal is a small text file beside the packed files: a header line that identifies the pack, then one
// line per finished file with its length, its checksums and the digests of its source. It is replaced
// atomically, after the finished file is on the disk under its own name. A file counts as finished only if it
// has a line and the length in it; otherwise it is written again. One thread at a time.

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
  std::vector<std::uint64_t> checksums;  // per tensor or record, in order
  // Of the source's bytes, in the same order; one per expert, over its three matrices.
  std::vector<Digest> digests;
  friend bool operator==(const FinishedFile&, const FinishedFile&) = default;
};

class Journal {
 public:
  // Reads the journal in `directory`, if it exists. Writes nothing. A journal with another `identity` is
  // `invalid_argument`: two packs are never mixed. A line that does not parse is ignored.
  static Result<Journal> open(FileSystem& files, const std::filesystem::path& directory,
                              const Digest& identity);

  // Creates the journal if it does not exist; returns when it is on the disk.
  Status begin();

  // The entry of `name` if the file exists with the recorded length, else nullopt. The caller checks the
  // number of checksums and digests.
  Result<std::optional<FinishedFile>> finished(const std::string& name);

  // Records a file that is on the disk; returns when the journal is on the disk too.
  Status add(const std::string& name, FinishedFile file);

  // Removes the journal of a complete pack. Harmless if a power failure undoes the removal: the next pack()
  // resumes with nothing left to write.
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
