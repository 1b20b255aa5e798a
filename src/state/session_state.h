#pragma once
// What a session remembers: its tokens, the keys and values of its attention layers, the recurrent states of the others.
//
// A step reads what is before position() and writes what is after it; commit() makes that visible, and without it
// nothing has happened. Keys and values are append-only, so rows beyond the position are simply not seen. Recurrent
// states have two sides: a step reads one and writes the other, and commit() turns them round.
//
//   reserve(rows)   memory for so many more positions, or an error and no change that anyone can see
//   ...the step...
//   commit(tokens), of all the rows or of some; or abandon(), and nothing is reserved any more
//
// A Snapshot (state/snapshot.h) shares the blocks; a block that somebody else sees is copied before this session writes
// to rows that the other might have. Owns its recurrent memory; the pool outlives it. Movable; one thread at a time.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/ids.h"
#include "base/result.h"
#include "model/config.h"
#include "state/kv_pool.h"
#include "state/snapshot.h"

namespace moeflux {

struct RecurrentView {
  const float* before = nullptr;
  float* after = nullptr;
};

class SessionState {
 public:
  // With room in its tables for `context` positions. The pool outlives it.
  static Result<SessionState> create(const ModelConfig& config, KvPool& pool, std::uint32_t context,
                                     KvNumbers numbers = KvNumbers::f32);

  SessionState(SessionState&&) noexcept = default;
  SessionState& operator=(SessionState&&) noexcept = default;

  const StateShape& shape() const { return shape_; }
  std::uint32_t position() const { return position_; }
  std::uint32_t context() const { return context_; }

  // The token at each position from tokens_begin() on; those before it are not known (an imported state).
  std::span<const TokenId> tokens() const { return tokens_; }
  std::uint32_t tokens_begin() const { return tokens_begin_; }

  // position() + rows <= context(). Of what is reserved already nothing is asked for again.
  Status reserve(std::uint32_t rows);
  void commit(std::span<const TokenId> tokens);
  void abandon();

  // As new: position 0, recurrent states zero, blocks given back.
  void clear();

  // Whether positions can be forgotten from the end: no layer has a recurrent state.
  bool can_truncate() const { return side_size_ == 0; }
  // Forgets everything from `position` on. can_truncate().
  void truncate(std::uint32_t position);

  // The state as it is. Copies recurrent states and tokens, and no block. `owner`: of the pool.
  Result<Snapshot> snapshot(std::shared_ptr<const void> owner = {}) const;
  // Becomes `snapshot`, which is of this model and fits the context. Copies no block.
  void restore(const Snapshot& snapshot);

  std::span<const KvBlock> kv(LayerId layer) const { return blocks_[layer.index()]; }
  RecurrentView conv(LayerId layer);
  RecurrentView delta(LayerId layer);

 private:
  SessionState(KvPool& pool, StateShape shape) : pool_(&pool), shape_(std::move(shape)) {}
  Result<KvBlock> new_block(const KvShape& shape);
  Status acquire_blocks(std::size_t wanted);
  void claim_rows(std::uint64_t end);
  Status own_block(const KvShape& shape, KvBlock& block, std::uint32_t rows_kept);
  float* side(unsigned which) const {
    return reinterpret_cast<float*>(const_cast<std::byte*>(recurrent_.data())) + which * side_size_;
  }

  KvPool* pool_;
  StateShape shape_;
  std::vector<std::vector<KvBlock>> blocks_;  // by layer
  std::vector<TokenId> tokens_;
  std::uint32_t tokens_begin_ = 0;
  std::uint32_t context_ = 0;
  std::uint32_t position_ = 0;
  std::uint64_t reserved_end_ = 0;  // up to here reserve() has claimed rows; not below position_
  HugeBuffer recurrent_;            // two sides
  std::uint64_t side_size_ = 0;     // in floats
  unsigned current_ = 0;
};

}  // namespace moeflux
