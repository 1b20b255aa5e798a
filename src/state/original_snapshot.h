#pragma once
// Reads the snapshot files of the original, versions 1 and 2 (docs/formats/snapshot.md).
//
// The file is untrusted: everything is checked before memory is allocated, and it is read in pieces. A file
// that changes while it is read gives any numbers, but no invalid access. Thread-safe function.

#include <cstdint>

#include "base/result.h"
#include "io/file_system.h"
#include "model/config.h"
#include "state/snapshot.h"
#include "state/snapshot_parts.h"

namespace moeflux {

// Returns the snapshot in a file of `file_bytes` bytes, of at most `context` positions and without tokens.
// `version`, the second word of the file, is 1 or 2.
Result<Snapshot> read_original_snapshot(const ReadFile& file, std::uint64_t file_bytes, std::uint32_t version,
                                        const ModelConfig& config, const StateShape& shape,
                                        const OwnedPool& pool, std::uint32_t context);

}  // namespace moeflux
