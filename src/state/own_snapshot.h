#pragma once
// Reads our own snapshot files, versions 3 and 4 (docs/formats/snapshot.md).
//
// The file is untrusted: its header and its size are checked before blocks are acquired, and its checksum
// before anything is returned. Thread-safe function.

#include <cstdint>

#include "base/result.h"
#include "state/piece_reader.h"
#include "state/snapshot.h"
#include "state/snapshot_file.h"

namespace moeflux {

// Returns the session in a file of `file_bytes` bytes. The magic number and `version`, which is 3 or 4, have
// been taken from `in`, which reads the whole file.
Result<SavedSession> read_own_snapshot(PieceReader& in, std::uint64_t file_bytes, std::uint32_t version,
                                       const StateShape& shape, const SnapshotDestination& to);

}  // namespace moeflux
