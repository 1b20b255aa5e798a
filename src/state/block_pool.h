#pragma once
// Memory for the states of sessions: blocks of keys and values and blocks of recurrent states, shared by all
// sessions of an engine.
//
// The pool takes memory from the system in slabs of blocks of one size, as sessions need it, up to a budget.
// Blocks never move. A BlockRef is a reference-counted share in a block; the last share returns the block to
// the pool. A slab without used blocks is returned to the system, unless there are no more free than used
// blocks of its size: sessions that step release a block and acquire another of that size at every step.
//
// The metadata of a block lies beside it in host memory, so the block itself can be any memory. Acquiring and
// returning a block allocates nothing on the heap.
//
// Blocks of keys and values are append-only. `filled` is the number of rows that have been claimed. A session
// whose position is exactly there may claim the next rows even if others share the block, because they read
// only earlier rows. A session at an earlier position must copy the block, unless it is the only owner.
//
// Thread-safe, except for `filled`: only the engine that runs a step uses it. A pool must outlive its blocks.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "base/memory/aligned_buffer.h"
#include "base/published.h"
#include "base/result.h"
#include "base/thread_annotations.h"

namespace moeflux {

inline constexpr std::uint32_t kKvBlockPositions = 256;
constexpr std::uint64_t kv_blocks_for(std::uint64_t positions) {
  return divide_up<std::uint64_t>(positions, kKvBlockPositions);
}

class BlockPool;

// A share in a block. Empty by default and after a move.
class BlockRef {
 public:
  BlockRef() = default;
  BlockRef(const BlockRef& other) noexcept;
  BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BlockRef();

  explicit operator bool() const { return block_ != nullptr; }
  float* data() const;        // the requested bytes, aligned to 64; uninitialized
  std::size_t bytes() const;  // what the block takes from its slab; 0 if empty
  // Claimed rows, 0 to kKvBlockPositions.
  std::uint32_t filled() const;
  void set_filled(std::uint32_t rows) const;
  bool is_shared() const;
  friend bool operator==(const BlockRef&, const BlockRef&) = default;

 private:
  friend class BlockPool;
  struct Block;
  explicit BlockRef(Block* block) : block_(block) {}

  Block* block_ = nullptr;
};

struct PoolUsage {
  std::uint64_t used_bytes = 0;    // blocks in use
  std::uint64_t slab_bytes = 0;    // what the budget limits; at least used_bytes
  std::uint64_t budget_bytes = 0;  // or BlockPool::kNoBudget
};

class BlockPool {
 public:
  // Limited only by the machine.
  static constexpr std::uint64_t kNoBudget = ~std::uint64_t{0};
  explicit BlockPool(std::uint64_t budget_bytes);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns a block of `size` bytes with no claimed rows. Error: out_of_memory if the budget has no room for
  // its slab.
  Result<BlockRef> acquire(std::size_t size);

  // Zeros, valid as long as the pool. They take no memory: nothing writes to these pages.
  Result<const float*> zeros(std::size_t size);

  // Bytes that a block of `size` bytes takes from its slab.
  static std::size_t block_bytes(std::size_t size);
  // A budget that has room for blocks of `block_bytes` bytes together, of at most `sizes` different sizes.
  static std::uint64_t budget_for(std::uint64_t block_bytes, std::uint64_t sizes);

  // Does not wait for other threads.
  PoolUsage usage() const;
  std::uint64_t used_bytes() const { return usage().used_bytes; }
  std::uint64_t slab_bytes() const { return usage().slab_bytes; }
  std::uint64_t budget_bytes() const { return budget_bytes_.load(std::memory_order_relaxed); }
  // Slabs beyond a smaller budget stay until they are empty.
  void set_budget_bytes(std::uint64_t bytes) { budget_bytes_.store(bytes, std::memory_order_relaxed); }

  // Bytes copied because a session wrote to a shared block. For tests.
  std::uint64_t copied_bytes() const { return copied_bytes_.load(std::memory_order_relaxed); }
  void count_copied(std::uint64_t bytes) { copied_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  friend class BlockRef;
  struct Slab;
  // A doubly linked list of slabs; the newest member is at the front.
  struct SlabList {
    Slab* front = nullptr;
    void push(Slab* slab);
    void remove(Slab* slab);
  };
  struct SizeClass {
    std::size_t size = 0;
    SlabList open, empty;  // with free blocks: some used, none used
    std::uint64_t free_blocks = 0, used_blocks = 0;
  };

  SizeClass& class_of(std::size_t size) MF_REQUIRES(mutex_);
  Status grow(SizeClass& size_class) MF_REQUIRES(mutex_);
  // Blocks in the next slab of this size; 0 if the budget has no room for one.
  std::size_t blocks_in_next_slab(std::size_t size) const MF_REQUIRES(mutex_);
  void return_empty_slabs() MF_REQUIRES(mutex_);
  void return_slab(SizeClass& size_class, Slab* slab) MF_REQUIRES(mutex_);
  void release(BlockRef::Block* block);
  void publish() MF_REQUIRES(mutex_);

  struct Taken {
    std::uint64_t used_bytes = 0, slab_bytes = 0;
  };

  std::atomic<std::uint64_t> budget_bytes_;
  std::atomic<std::uint64_t> copied_bytes_ = 0;
  mutable Mutex mutex_;
  std::vector<SizeClass> classes_ MF_GUARDED_BY(mutex_);
  std::vector<HugeBuffer> zeros_ MF_GUARDED_BY(mutex_);
  std::uint64_t used_bytes_ MF_GUARDED_BY(mutex_) = 0;
  std::uint64_t slab_bytes_ MF_GUARDED_BY(mutex_) = 0;
  Published<Taken> published_;  // the two above
};

}  // namespace moeflux
