#pragma once
// Source → packed model, written so that it can be interrupted at any moment.
//
// Each file is written under another name, synced, renamed, and then noted in a journal; manifest.json comes last. A
// directory without a manifest is no model; run again with the same source and options, pack keeps the finished files
// and writes the rest, and the result is the same to the last byte. Memory is bounded by a few buffers a job. Any
// failure leaves the journal, and a manifest only if nothing but the journal's removal was left to do. Blocks until done; `progress` is called from several threads, one at a
// time.

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
  std::uint64_t done_bytes;  // of the packed model, those of an earlier run included
  std::uint64_t kept_bytes;  // of these, from an earlier run
  std::uint64_t total_bytes;
};

struct PackReport {
  Manifest manifest;
  std::uint64_t written_bytes = 0;  // by this run
  std::uint64_t kept_bytes = 0;     // finished by an earlier one
};

// `source_files` is where the source was opened: its tokenizer and template are copied from there. `files` is where
// the packed model goes. A finished model at `destination` is `invalid_argument`; too little room is `no_space`,
// before anything is written.
Result<PackReport> pack(const SourceModel& source, FileSystem& source_files, FileSystem& files,
                        const std::filesystem::path& destination, const PackOptions& options,
                        FunctionRef<void(const PackProgress&)> progress);

}  // namespace moeflux
