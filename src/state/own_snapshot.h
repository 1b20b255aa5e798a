#pragma once
// Reads our own snapshot files, versions 3 and 4 (docs/formats/snapshot.md).
//
// The file is untrusted: its header and its size are checked before blocks are acquired, and its checksum
// before anything is returned. Thread-safe functions.

#include <cstdint>

#include "base/result.h"
#include "state/piece_reader.h"
#include "state/snapshot.h"
#include "state/snapshot_file.h"

namespace moeflux {

// A file of `version` 3 or 4. The magic number and the version have been taken from `in`, which reads the
// whole file.
struct OwnSnapshotFile {
  PieceReader& in;
  std::uint64_t bytes;
  std::uint32_t version;
};
Result<SavedSession> read_own_snapshot(const OwnSnapshotFile& file, const StateShape& shape,
                                       const SnapshotDestination& to);
Result<SnapshotTokens> read_own_tokens(const OwnSnapshotFile& file, const ModelConfig& config,
                                       const Digest& fingerprint, std::uint32_t context);

}  // namespace moeflux
