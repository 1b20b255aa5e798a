#pragma once
// Reads and writes snapshot files (docs/formats/snapshot.md). Reads versions 1 to 4; writes version 4.
//
// A file has the state of a session and its checkpoints. These are on the timeline of the state, so the file
// has their positions and recurrent states and no keys and values of their own.
//
// A file is untrusted: everything is checked before a Snapshot is returned, memory is allocated only in
// proportion to the bytes of the file, and after an error all blocks are back in the pool. A file is read
// into the blocks in pieces (state/piece_reader.h) and never in memory as a whole. Thread-safe functions.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/hash.h"
#include "base/result.h"
#include "io/file_system.h"
#include "model/config.h"
#include "state/block_pool.h"
#include "state/snapshot.h"

namespace moeflux {

inline constexpr std::uint32_t kSnapshotMagic = 0x4D464C58;
inline constexpr std::uint32_t kSnapshotVersion = 4;
inline constexpr std::uint64_t kSnapshotHeaderBytes = 64;
inline constexpr std::uint64_t kSnapshotChecksumBytes = 8;
inline constexpr std::size_t kMostSavedCheckpoints = 256;
// From the first release on, changes whenever results change.
inline constexpr std::uint32_t kLawVersion = 2;

// Which model a state belongs to, and which arithmetic computed it.
struct SnapshotIdentity {
  Digest fingerprint;
  std::uint32_t law = kLawVersion;
  std::uint32_t precision = 0;
  std::uint32_t experts_per_token = 0;
  std::uint32_t kv_dtype = 0;
  friend bool operator==(const SnapshotIdentity&, const SnapshotIdentity&) = default;
};

struct SavedSession {
  Snapshot snapshot;
  std::vector<Snapshot> checkpoints = {};  // at different positions, most recently used first
};
// What a file can hold of a session at `snapshot`: leaves out the checkpoints that are not on its timeline,
// and the least recently used of those beyond kMostSavedCheckpoints.
SavedSession session_to_save(const StateShape& shape, Snapshot snapshot, std::vector<Snapshot> checkpoints);

// Size of the file of a snapshot at `position` with `tokens` known tokens and checkpoints at these positions.
std::uint64_t snapshot_bytes(const StateShape& shape, std::uint32_t position, std::uint32_t tokens,
                             std::span<const std::uint32_t> checkpoints = {});
std::uint64_t snapshot_bytes(const StateShape& shape, const SavedSession& session);

// Passes the file to `sink` in pieces, in order. Ends with the first error of `sink`. Requires: `session` is
// as session_to_save() returns it.
using SnapshotSink = FunctionRef<Status(std::span<const std::byte>)>;
Status write_snapshot(const StateShape& shape, const SnapshotIdentity& identity, const SavedSession& session,
                      SnapshotSink sink);

// What a file is read for.
struct SnapshotDestination {
  const ModelConfig& config;
  SnapshotIdentity identity;               // the file must have the same
  BlockPool& pool;                         // the blocks come from it
  std::uint32_t context = 0;               // a snapshot has at most that many positions
  std::shared_ptr<const void> owner = {};  // keeps the pool alive
  // Checkpoints that are read, the most recently used ones; those at position 0 and at the position of the
  // snapshot take no memory and are always read. A checkpoint is also left out if the pool has no room for
  // its recurrent states.
  std::size_t most_checkpoints = 0;
};
Result<SavedSession> read_snapshot(const ReadFile& file, const SnapshotDestination& to);
Result<SavedSession> read_snapshot(std::span<const std::byte> bytes, const SnapshotDestination& to);

// What is left of a file whose state cannot be used, because another arithmetic computed it: a session that
// runs the tokens again has the state.
struct SnapshotTokens {
  SnapshotIdentity identity;               // of the file
  std::vector<TokenId> tokens;             // of all positions
  std::vector<std::uint32_t> checkpoints;  // their positions, most recently used first
};
// Reads the tokens of a file of the model with this fingerprint, of at most `context` positions; the law, the
// precision, the KV dtype and the experts per token may be any. Reads and checks the whole file. Error for a
// file that does not have the tokens of all positions: tokens_unknown.
Result<SnapshotTokens> read_snapshot_tokens(const ReadFile& file, const ModelConfig& config,
                                            const Digest& fingerprint, std::uint32_t context);

}  // namespace moeflux
