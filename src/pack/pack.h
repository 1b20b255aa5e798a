#pragma once
// Converts a source to a packed model, resumable after an interruption at any moment.
//
// Each file is written under a temporary name, synced, renamed, and then recorded in a journal. manifest.json
// comes last: a directory without one is not a model. Run again with the same source and options, pack()
// keeps the finished files and writes the rest; the result is byte-identical. After a failure the journal
// remains, and a manifest exists only if removing the journal was the only step left. A pack that is
// cancelled (PackOptions::cancel) is a failed one. Memory is bounded by a few buffers per job.

#include <cstdint>
#include <filesystem>

#include "base/function_ref.h"
#include "base/result.h"
#include "io/file_system.h"
#include "model/packed_format.h"
#include "pack/plan.h"
#include "source/source_model.h"

namespace moeflux {

struct PackProgress {
  std::uint64_t done_bytes;  // of the packed model, including those of an earlier run
  std::uint64_t kept_bytes;  // the part of done_bytes that an earlier run wrote
  std::uint64_t total_bytes;
  // The destination is already complete. The source is read to compare its weights, and the counts are bytes
  // of the source.
  bool comparing = false;
};

struct PackReport {
  Manifest manifest;
  std::uint64_t written_bytes = 0;  // by this run
  std::uint64_t kept_bytes = 0;     // finished by an earlier run
  bool already_packed = false;      // the destination was finished; nothing was written
};

// Writes `source` to `destination` in `files`; tokenizer and template are copied from `source_files`, where
// the source was opened. If `destination` is a finished pack of the same source with the same options, writes
// nothing and reports `already_packed`, after reading the whole source to compare its weights. Errors:
// `invalid_argument` if `destination` holds another packed model, an unfinished pack of another source, or
// other files; `no_space` before anything is written if there is too little room. Blocks until done.
// `progress` is called from several threads, one at a time.
Result<PackReport> pack(const SourceModel& source, FileSystem& source_files, FileSystem& files,
                        const std::filesystem::path& destination, const PackOptions& options,
                        FunctionRef<void(const PackProgress&)> progress);

}  // namespace moeflux
