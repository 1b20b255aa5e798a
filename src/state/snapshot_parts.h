#pragma once
// The parts that the files of all versions consist of: rows of keys and values, and recurrent states. Used by
// the readers and writers of snapshot files only (docs/formats/snapshot.md).
//
// Functions of their arguments: any thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "state/block_pool.h"
#include "state/piece_reader.h"
#include "state/snapshot.h"

namespace moeflux {

// The keys or the values of a layer. `heads` is 0 for a layer without them.
struct KvPart {
  float* KvBlock::*rows;
  std::size_t heads, words;  // words per row

  std::size_t bytes(std::uint32_t positions) const { return positions * heads * words * sizeof(float); }
  // The layout of a block is [heads][positions][words].
  float* row(std::span<const KvBlock> blocks, std::uint32_t position, std::size_t head) const {
    return blocks[position / kKvBlockPositions].*rows +
           (head * kKvBlockPositions + position % kKvBlockPositions) * words;
  }
};
KvPart keys_of(const KvShape& shape);
KvPart values_of(const KvShape& shape);

// Whether a file of a session at `position` has recurrent states for a checkpoint. At position 0 they are
// zero, and at `position` they are those of the session.
constexpr bool has_own_states(std::uint32_t checkpoint, std::uint32_t position) {
  return checkpoint != 0 && checkpoint != position;
}

// Bytes of a layer: its rows of `positions` positions and its recurrent state.
std::uint64_t layer_bytes(const StateShape& shape, std::size_t layer, std::uint64_t positions);

Status take_floats(PieceReader& in, std::span<float> out);
// Reads [positions][heads][words] into `blocks`.
Status take_rows(PieceReader& in, std::span<const KvBlock> blocks, const KvPart& part,
                 std::uint32_t positions);

// The pool of the blocks, and what keeps it alive.
struct OwnedPool {
  BlockPool& pool;
  std::shared_ptr<const void> owner;
};

// Contents with acquired blocks for `positions` positions.
Result<std::shared_ptr<Snapshot::Contents>> empty_contents(const StateShape& shape, const OwnedPool& from,
                                                           std::uint32_t positions);

// An error about the contents of a file.
Error snapshot_error(ErrorCode code, std::string message);
Error shape_mismatch(std::string_view field, std::int64_t found, std::int64_t expected);

}  // namespace moeflux
