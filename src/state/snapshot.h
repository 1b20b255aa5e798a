#pragma once
// The state of a session at one position. Immutable and cheap to keep.
//
// Shares the blocks of the session that it was taken from, and copies only tokens. Copies of a Snapshot share
// everything. Immutable: any thread. The pool of the blocks must
// outlive it; Contents::owner keeps the pool alive.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/config.h"
#include "quant/delta_state.h"
#include "quant/kv_dtype.h"
#include "state/block_pool.h"

namespace moeflux {

// The shape of a layer's keys and values. `heads` is 0 for a layer without them.
struct KvShape {
  std::uint32_t heads = 0;
  std::uint32_t key_dim = 0;
  std::uint32_t value_dim = 0;  // 0: values are parts of the keys (MLA)
  KvDtype dtype = KvDtype::f32;
  // Sizes in words of 4 bytes: a row of one head, and all keys of a block.
  std::size_t key_row_words() const { return kv_row_words(dtype, key_dim); }
  std::size_t value_row_words() const { return kv_row_words(dtype, value_dim); }
  std::size_t key_words() const { return std::size_t{heads} * kKvBlockPositions * key_row_words(); }
  std::size_t block_bytes() const;
  friend bool operator==(const KvShape&, const KvShape&) = default;
};

// Where a layer's recurrent state lies in the block of all recurrent states. Sizes are 0 for attention
// layers.
struct RecurrentShape {
  std::uint64_t conv_offset = 0, conv_size = 0;  // floats: [conv_width - 1][conv_dim]
  std::uint64_t delta_offset = 0;                // floats: [value_heads][delta_head.size()]
  std::uint32_t value_heads = 0;
  DeltaStateShape delta_head;

  std::uint64_t delta_size() const { return value_heads * std::uint64_t{delta_head.size()}; }
  friend bool operator==(const RecurrentShape&, const RecurrentShape&) = default;
};

// The shape of a model's state.
struct StateShape {
  std::vector<KvShape> kv;                // by layer
  std::vector<RecurrentShape> recurrent;  // by layer
  std::uint64_t recurrent_size = 0;       // floats, all layers

  // Bytes of the blocks of keys and values for `positions` positions.
  std::uint64_t kv_bytes(std::uint64_t positions) const;
  // Bytes of the recurrent states of one position, and of their block.
  std::uint64_t recurrent_bytes() const { return recurrent_size * sizeof(float); }
  std::uint64_t recurrent_block_bytes() const { return BlockPool::block_bytes(recurrent_bytes()); }
  // Bytes of the blocks of a session that has run `positions` positions and runs no step.
  std::uint64_t session_bytes(std::uint64_t positions) const {
    return positions == 0 ? 0 : kv_bytes(positions) + recurrent_block_bytes();
  }
  // How many sizes its blocks have.
  std::uint64_t block_sizes() const;
};
StateShape state_shape_of(const ModelConfig& config, KvDtype dtype = KvDtype::f32);

// Keys and values of one layer for kKvBlockPositions positions, each [heads][positions][row words]. KvShape
// defines the words.
struct KvBlock {
  BlockRef memory;
  float* keys = nullptr;
  float* values = nullptr;  // null if values are parts of the keys (MLA)
};

class Snapshot {
 public:
  struct Contents {
    std::shared_ptr<const void> owner;  // keeps the pool of the blocks alive; destroyed last; may be empty
    std::uint32_t position = 0;
    std::vector<TokenId> tokens;
    std::uint32_t tokens_begin = 0;            // position of the first token
    std::vector<std::vector<KvBlock>> blocks;  // by layer, as many as `position` needs
    BlockRef recurrent;                        // of all layers; empty: zeros, or no layer has any
  };
  explicit Snapshot(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}

  std::uint32_t position() const { return contents_->position; }
  std::span<const TokenId> tokens() const { return contents_->tokens; }
  std::uint32_t tokens_begin() const { return contents_->tokens_begin; }
  const Contents& contents() const { return *contents_; }

  // Bytes that only snapshots of this position need once the session has moved on: recurrent states, tokens.
  std::uint64_t own_bytes() const {
    return contents_->recurrent.bytes() + contents_->tokens.size() * sizeof(TokenId);
  }

 private:
  std::shared_ptr<const Contents> contents_;
};

// The state at an earlier position of the timeline of `later`, with other recurrent states. Shares the blocks
// of keys and values. Requires: `position` is in [later.tokens_begin(), later.position()].
Snapshot earlier_snapshot(const Snapshot& later, std::uint32_t position, BlockRef recurrent);

// Whether `earlier` is on the timeline of `later`, so that it differs in nothing but its recurrent states:
// its tokens and its rows of keys and values are the first ones of `later`, bit by bit. At the same position
// these do not differ either, and at position 0 they are zero. Compares only rows of blocks that the two do
// not share.
bool is_on_timeline(const StateShape& shape, const Snapshot& earlier, const Snapshot& later);

}  // namespace moeflux
