#pragma once
// The state of a session at one position: immutable, and cheap to keep.
//
// Blocks of keys and values are shared with the session that it was taken of; only recurrent states and tokens are
// copied. Copies of a Snapshot share everything. Any thread. The pool of its blocks outlives it, which Contents::owner
// is there for.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/delta_state.h"
#include "base/ids.h"
#include "base/kv_numbers.h"
#include "model/config.h"
#include "state/kv_pool.h"

namespace moeflux {

// The shape of a layer's keys and values; heads 0: the layer has none.
struct KvShape {
  std::uint32_t heads = 0;
  std::uint32_t key_dim = 0;
  std::uint32_t value_dim = 0;  // 0: values are parts of the keys
  KvNumbers numbers = KvNumbers::f32;
  // Words of 4 bytes: of a row of one head, and of all keys of a block.
  std::size_t key_row_words() const { return kv_row_words(numbers, key_dim); }
  std::size_t value_row_words() const { return kv_row_words(numbers, value_dim); }
  std::size_t key_words() const { return std::size_t{heads} * kKvBlockPositions * key_row_words(); }
  std::size_t block_bytes() const;
  friend bool operator==(const KvShape&, const KvShape&) = default;
};

// Where a layer's recurrent state lies among those of all layers; sizes are 0 for attention layers.
struct RecurrentShape {
  std::uint64_t conv_offset = 0, conv_size = 0;  // floats: [conv_width - 1][conv_dim]
  std::uint64_t delta_offset = 0;                // floats: [value_heads] of what is in delta_head
  std::uint32_t value_heads = 0;
  DeltaStateShape delta_head;

  std::uint64_t delta_size() const { return value_heads * std::uint64_t{delta_head.size()}; }
  friend bool operator==(const RecurrentShape&, const RecurrentShape&) = default;
};

// What the states of a model look like.
struct StateShape {
  std::vector<KvShape> kv;                // by layer
  std::vector<RecurrentShape> recurrent;  // by layer
  std::uint64_t recurrent_size = 0;       // floats of all layers together

  // Bytes of the blocks of so many positions, and of one set of recurrent states.
  std::uint64_t kv_bytes(std::uint64_t positions) const;
  std::uint64_t recurrent_bytes() const { return recurrent_size * sizeof(float); }
};
StateShape state_shape_of(const ModelConfig& config, KvNumbers numbers = KvNumbers::f32);

// Keys and values of one layer for kKvBlockPositions positions: [heads][positions][words of a row] each. What the words are
// is KvShape's to say.
struct KvBlock {
  KvBlockRef memory;
  float* keys = nullptr;
  float* values = nullptr;  // null where a value is a part of its key (MLA)
};

class Snapshot {
 public:
  struct Contents {
    std::shared_ptr<const void>
        owner;  // of the blocks' pool, which it keeps alive; the last to go; may be empty
    std::uint32_t position = 0;
    std::vector<TokenId> tokens;
    std::uint32_t tokens_begin = 0;            // position of the first of them
    std::vector<std::vector<KvBlock>> blocks;  // by layer, as many as position needs
    HugeBuffer recurrent;                      // one side; empty where no layer has any
  };
  explicit Snapshot(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}

  std::uint32_t position() const { return contents_->position; }
  std::span<const TokenId> tokens() const { return contents_->tokens; }
  std::uint32_t tokens_begin() const { return contents_->tokens_begin; }
  const Contents& contents() const { return *contents_; }

  // Bytes that only this snapshot and its copies hold: recurrent states and tokens.
  std::uint64_t own_bytes() const {
    return contents_->recurrent.size() + contents_->tokens.size() * sizeof(TokenId);
  }

 private:
  std::shared_ptr<const Contents> contents_;
};

}  // namespace moeflux
