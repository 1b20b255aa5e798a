#pragma once
// Says how a saved session differs from the engine that cannot load it. A pure function.

#include <string>

#include "state/snapshot_file.h"

namespace moeflux::cli {

// "saved by an older version (law 1)", "saved with --precision exact, --kv int8", or both. Requires: the two
// differ.
std::string saved_how(const SnapshotIdentity& saved, const SnapshotIdentity& here);

}  // namespace moeflux::cli
