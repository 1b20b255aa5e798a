#pragma once
// The memory of a session: its tokens, the keys and values of its attention layers, the recurrent states of
// the other layers.
//
// A step reads the state before position() and writes the state after it. commit() makes the step visible;
// until then the session is unchanged. Keys and values are append-only, so rows beyond the position are never
// read. The recurrent states of all layers are one block: a step reads the block of its position and writes
// another, which commit() puts in its place. A new recurrent state includes all tokens of the step, so a step
// is committed as a whole or not at all.
//
//   begin_step(tokens)   reserves memory for the step, or fails and changes nothing visible
//   ... the layers run ...
//   commit()             advances past `tokens`; or abandon(), which also returns reserved memory
//
// reserve() does the allocating part of begin_step() ahead of time, for one or more steps.
//
// A Snapshot (state/snapshot.h) shares the blocks, so taking and restoring one copies no state. A block of
// keys and values that is shared is copied before this session writes to rows that another owner might read.
// The pool must outlive the session. Movable. One thread at a time.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/config.h"
#include "state/block_pool.h"
#include "state/snapshot.h"

namespace moeflux {

struct RecurrentView {
  const float* before = nullptr;
  float* after = nullptr;  // null outside of a step
};

class SessionState {
 public:
  // A state with room in its tables for `context` positions. The pool must outlive it.
  static Result<SessionState> create(const ModelConfig& config, BlockPool& pool, std::uint32_t context,
                                     KvDtype dtype = KvDtype::f32);

  SessionState(SessionState&&) noexcept = default;
  SessionState& operator=(SessionState&&) noexcept = default;

  const StateShape& shape() const { return shape_; }
  std::uint32_t position() const { return position_; }
  std::uint32_t context() const { return context_; }

  // The tokens at positions [tokens_begin(), position()). Earlier tokens are unknown (an imported state).
  std::span<const TokenId> tokens() const { return std::span(tokens_).first(position_ - tokens_begin_); }
  std::uint32_t tokens_begin() const { return tokens_begin_; }

  // Reserves memory for `rows` positions from position() on, run in `steps` steps with `snapshots` snapshots
  // between them. Rows that are already reserved are not acquired again. Requires: position() + rows <=
  // context().
  Status reserve(std::uint32_t rows, std::uint64_t steps = 1, std::uint64_t snapshots = 0);

  // ---- A step ----
  // Begins a step over `tokens`: copies them and reserves their rows. Replaces an uncommitted step.
  // Requires: `tokens` is not empty, and position() + tokens.size() <= context().
  Status begin_step(std::span<const TokenId> tokens);
  // Makes the step visible, after the layers have run all of its rows. Requires: a step was begun.
  void commit();
  // Drops the step, if any, and returns all reserved rows. A no-op if there are none.
  void abandon();

  // Resets to a new state: position 0, recurrent states zero, all blocks returned.
  void clear();

  // Whether positions can be dropped from the end: true if no layer has a recurrent state.
  bool can_truncate() const { return !is_recurrent(); }
  // Drops all positions from `position` on. Requires: can_truncate() and position <= position().
  void truncate(std::uint32_t position);

  // Returns the committed state. Copies tokens but no block. `owner` owns the pool.
  Snapshot snapshot(std::shared_ptr<const void> owner = {}) const;
  // Replaces this state with `snapshot`. Copies tokens but no block. Requires: the snapshot is of the same
  // model and fits the context.
  void restore(const Snapshot& snapshot);

  std::span<const KvBlock> kv(LayerId layer) const { return blocks_[layer.index()]; }
  RecurrentView conv(LayerId layer);
  RecurrentView delta(LayerId layer);

 private:
  SessionState(BlockPool& pool, StateShape shape) : pool_(&pool), shape_(std::move(shape)) {}
  bool is_recurrent() const { return shape_.recurrent_size != 0; }
  Result<KvBlock> new_block(const KvShape& shape);
  Status acquire_blocks(std::size_t count);
  Status acquire_recurrent(std::uint64_t steps, std::uint64_t snapshots);
  void claim_rows(std::uint64_t end);
  Status own_block(const KvShape& shape, KvBlock& block, std::uint32_t rows_kept);
  void drop_step();
  RecurrentView recurrent_at(std::uint64_t offset) const;

  BlockPool* pool_;
  StateShape shape_;
  std::vector<std::vector<KvBlock>> blocks_;  // by layer
  std::vector<TokenId> tokens_;  // from tokens_begin_ on; those of the step follow the committed ones
  std::uint32_t tokens_begin_ = 0;
  std::uint32_t context_ = 0;
  std::uint32_t position_ = 0;
  std::uint64_t reserved_end_ = 0;  // reserve() has claimed the rows below it; at least position_
  BlockRef recurrent_;              // of position_; empty: zeros
  std::vector<BlockRef>
      writable_;  // for the recurrent states of the reserved steps; the next writes the last
  const float* zeros_ = nullptr;
};

}  // namespace moeflux
