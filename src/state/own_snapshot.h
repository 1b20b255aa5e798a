#pragma once
// Reads our own snapshot files, version 3 (docs/formats/snapshot.md).
//
// The file is untrusted: its header and its size are checked before blocks are acquired, and its checksum
// before anything is returned. Thread-safe function.

#include <cstdint>

#include "base/result.h"
#include "state/piece_reader.h"
#include "state/snapshot.h"
#include "state/snapshot_file.h"

namespace moeflux {

// Returns the snapshot in a file of `file_bytes` bytes. The magic number and the version have been taken from
// `in`, which reads the whole file.
Result<Snapshot> read_own_snapshot(PieceReader& in, std::uint64_t file_bytes, const StateShape& shape,
                                   const SnapshotDestination& to);

}  // namespace moeflux
