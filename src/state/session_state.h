#pragma once
// What a session remembers: keys and values of its attention layers, recurrent states of the others.
//
// A step reads what is before position() and writes what is after it; commit() makes that visible, and without it
// nothing has happened. Keys and values are append-only, so rows beyond the position are simply not seen. Recurrent
// states have two sides: a step reads one and writes the other, and commit() turns them round.
//
//   reserve(rows)   memory for so many more positions, or an error and no change that anyone can see
//   ...the step...
//   commit(rows)
//
// Owns its recurrent memory; its blocks belong to the pool, which outlives it. Movable; one thread at a time.

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/ids.h"
#include "base/result.h"
#include "model/config.h"
#include "state/kv_pool.h"

namespace moeflux {

// Keys and values of one layer for kKvBlockPositions positions: [heads][positions][dim] each.
struct KvBlock {
  float* keys = nullptr;
  float* values = nullptr;  // null where a value is a part of its key (MLA)
};

// The shape of a layer's keys and values; heads 0: the layer has none.
struct KvShape {
  std::uint32_t heads = 0;
  std::uint32_t key_dim = 0;
  std::uint32_t value_dim = 0;  // 0: values are parts of the keys
  std::size_t block_bytes() const;
};
KvShape kv_shape_of(const MixerConfig& mixer);

// Floats of a layer's recurrent state: 0 for attention layers.
struct RecurrentShape {
  std::uint64_t conv = 0;   // [conv_width - 1][conv_dim]
  std::uint64_t delta = 0;  // [value_heads][key_head_dim][value_head_dim]
};
RecurrentShape recurrent_shape_of(const MixerConfig& mixer);

struct RecurrentView {
  const float* before = nullptr;
  float* after = nullptr;
};

class SessionState {
 public:
  // With room in its tables for `context` positions. Both outlive it.
  static Result<SessionState> create(const ModelConfig& config, KvPool& pool, std::uint32_t context);
  // Bytes of create()'s memory, without the blocks.
  static std::uint64_t fixed_bytes(const ModelConfig& config);
  // Bytes of the blocks of `positions` positions.
  static std::uint64_t kv_bytes(const ModelConfig& config, std::uint32_t positions);

  SessionState(SessionState&& other) noexcept;
  SessionState& operator=(SessionState&& other) noexcept;
  ~SessionState();

  std::uint32_t position() const { return position_; }
  std::uint32_t context() const { return context_; }

  // position() + rows <= context().
  Status reserve(std::uint32_t rows);
  void commit(std::uint32_t rows);

  // As new: position 0, recurrent states zero, blocks given back.
  void clear();

  std::span<const KvBlock> kv(LayerId layer) const { return layers_[layer.index()].blocks; }
  RecurrentView conv(LayerId layer);
  RecurrentView delta(LayerId layer);

 private:
  struct Layer {
    KvShape kv_shape;
    std::vector<KvBlock> blocks;
    std::uint64_t conv_offset = 0, delta_offset = 0;  // in floats, of one side
  };

  explicit SessionState(KvPool& pool) : pool_(&pool) {}
  void release_blocks();
  float* side(unsigned which) { return reinterpret_cast<float*>(recurrent_.data()) + which * side_size_; }

  KvPool* pool_;
  std::vector<Layer> layers_;
  std::uint32_t context_ = 0;
  std::uint32_t position_ = 0;
  HugeBuffer recurrent_;         // two sides
  std::uint64_t side_size_ = 0;  // in floats
  unsigned current_ = 0;
};

}  // namespace moeflux
