#pragma once
// Reads the snapshot files of the original, versions 1 and 2 (docs/formats/snapshot.md).
//
// The bytes are untrusted: everything is checked before memory is allocated. Thread-safe function.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "model/config.h"
#include "state/snapshot.h"
#include "state/snapshot_parts.h"

namespace moeflux {

// Returns the snapshot in `bytes`, of at most `context` positions and without tokens. `version` is 1 or 2.
Result<Snapshot> read_original_snapshot(std::span<const std::byte> bytes, std::uint32_t version,
                                        const ModelConfig& config, const StateShape& shape,
                                        const OwnedPool& pool, std::uint32_t context);

}  // namespace moeflux
