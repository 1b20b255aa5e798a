#pragma once
// Snapshots as bytes: docs/formats/snapshot.md describes them. Reads versions 1, 2 and 3, writes 3.
//
// Bytes are untrusted: everything is checked before a Snapshot exists, and nothing is allocated that the bytes do not
// pay for. Pure functions over bytes; any thread, as far as the pool allows.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/function_ref.h"
#include "base/hash.h"
#include "base/result.h"
#include "model/config.h"
#include "state/kv_pool.h"
#include "state/snapshot.h"

namespace moeflux {

inline constexpr std::uint32_t kSnapshotMagic = 0x4D464C58;
inline constexpr std::uint32_t kSnapshotVersion = 3;
inline constexpr std::uint32_t kLawVersion = 1;  // changes with every result, from the first release on

// Whose state it is, and by which arithmetic.
struct SnapshotIdentity {
  Digest fingerprint;
  std::uint32_t law = kLawVersion;
  std::uint32_t precision = 0;
  std::uint32_t experts_per_token = 0;
  std::uint32_t kv_numbers = 0;
  friend bool operator==(const SnapshotIdentity&, const SnapshotIdentity&) = default;
};

// Bytes of the file of a snapshot at `position` with so many known tokens.
std::uint64_t snapshot_bytes(const StateShape& shape, std::uint64_t position, std::uint64_t tokens);
// No file of any version that fits into `context` is larger.
std::uint64_t largest_snapshot_bytes(const StateShape& shape, std::uint64_t context);

// Hands the file to `sink`, piece by piece, in order.
using SnapshotSink = FunctionRef<Status(std::span<const std::byte>)>;
Status write_snapshot(const StateShape& shape, const SnapshotIdentity& identity, const Snapshot& snapshot,
                      SnapshotSink sink);

// The snapshot in `bytes`, of at most `context` positions, its blocks from `pool`, which belongs to `owner`.
Result<Snapshot> read_snapshot(std::span<const std::byte> bytes, const ModelConfig& config,
                               const SnapshotIdentity& identity, KvPool& pool, std::uint32_t context,
                               std::shared_ptr<const void> owner = {});

}  // namespace moeflux
