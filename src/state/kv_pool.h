#pragma once
// Memory for keys and values: blocks of kKvBlockPositions positions of one layer, shared by all sessions of an engine.
//
// The pool grows with use, up to a budget; what is given back is used again, and what is in use never moves, so growth
// copies nothing. A KvBlockRef is a share in a block: copying it shares, the last one to go gives the block back.
//
// Blocks are append-only. `filled` says how many of a block's rows somebody has claimed, and whoever stands exactly
// there may claim the next ones, even of a block that others share, because they look at earlier rows only. Whoever
// stands before that has to copy, unless the block is its own alone.
//
// Sizes of blocks are few (one a kind of layer), so each has a list of free blocks, threaded through the blocks:
// acquire() and giving back allocate nothing on the heap. Thread-safe; the fields of one block are for the engine that
// runs a step. A pool outlives its blocks.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/arithmetic.h"
#include "base/result.h"
#include "base/thread_annotations.h"

namespace moeflux {

inline constexpr std::uint32_t kKvBlockPositions = 256;
constexpr std::uint64_t kv_blocks_for(std::uint64_t positions) {
  return divide_up<std::uint64_t>(positions, kKvBlockPositions);
}

class KvPool;

// A share in a block; empty by default and after being moved from.
class KvBlockRef {
 public:
  KvBlockRef() = default;
  KvBlockRef(const KvBlockRef& other) noexcept;
  KvBlockRef(KvBlockRef&& other) noexcept : header_(std::exchange(other.header_, nullptr)) {}
  KvBlockRef& operator=(KvBlockRef other) noexcept {
    std::swap(header_, other.header_);
    return *this;
  }
  ~KvBlockRef();

  explicit operator bool() const { return header_ != nullptr; }
  float* data() const;  // the bytes that were asked for, at 64; indeterminate at first
  // Rows that are claimed, of kKvBlockPositions.
  std::uint32_t filled() const;
  void set_filled(std::uint32_t rows) const;
  bool is_shared() const;
  friend bool operator==(const KvBlockRef&, const KvBlockRef&) = default;

 private:
  friend class KvPool;
  struct Header;
  explicit KvBlockRef(Header* header) : header_(header) {}

  Header* header_ = nullptr;
};

class KvPool {
 public:
  // No limit but the machine's.
  static constexpr std::uint64_t kNoBudget = ~std::uint64_t{0};
  explicit KvPool(std::uint64_t budget_bytes);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  // A block of `size` bytes with nothing filled. Beyond the budget it is out_of_memory, with both numbers.
  Result<KvBlockRef> acquire(std::size_t size);

  // What a block of so many bytes takes, all told.
  static std::size_t block_bytes(std::size_t size);

  std::uint64_t used_bytes() const;
  std::uint64_t budget_bytes() const { return budget_bytes_; }
  // Bytes that were copied because somebody wrote to a block that others see; counted for tests.
  std::uint64_t copied_bytes() const { return copied_bytes_.load(std::memory_order_relaxed); }
  void count_copied(std::uint64_t bytes) { copied_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  friend class KvBlockRef;
  struct SizeClass {
    std::size_t size;
    KvBlockRef::Header* free;
  };

  SizeClass& class_of(std::size_t size) MF_REQUIRES(mutex_);
  Status grow(SizeClass& size_class) MF_REQUIRES(mutex_);
  void release(KvBlockRef::Header* header);

  const std::uint64_t budget_bytes_;
  std::atomic<std::uint64_t> copied_bytes_ = 0;
  mutable Mutex mutex_;
  std::vector<HugeBuffer> slabs_ MF_GUARDED_BY(mutex_);
  std::vector<SizeClass> classes_ MF_GUARDED_BY(mutex_);
  std::uint64_t used_bytes_ MF_GUARDED_BY(mutex_) = 0;
};

}  // namespace moeflux
