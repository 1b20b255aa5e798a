#pragma once
// Memory for keys and values: blocks of kKvBlockPositions positions of one layer, shared by all sessions of
// an engine.
//
// The pool grows on demand up to a budget. Returned blocks are reused, and blocks in use never move, so
// growing copies nothing. A KvBlockRef is a reference-counted share in a block; the last share returns the
// block to the pool.
//
// Blocks are append-only. `filled` is the number of rows that have been claimed. A session whose position is
// exactly there may claim the next rows even if others share the block, because they read only earlier rows.
// A session at an earlier position must copy the block, unless it is the only owner.
//
// There are few block sizes (one per kind of layer). Each has a free list threaded through its blocks, so
// acquiring and returning a block allocates nothing on the heap. Thread-safe, except for the fields of a
// block: only the engine that runs a step uses them. A pool must outlive its blocks.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/arithmetic.h"
#include "base/memory/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_annotations.h"

namespace moeflux {

inline constexpr std::uint32_t kKvBlockPositions = 256;
constexpr std::uint64_t kv_blocks_for(std::uint64_t positions) {
  return divide_up<std::uint64_t>(positions, kKvBlockPositions);
}

class KvPool;

// A share in a block. Empty by default and after a move.
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
  float* data() const;  // the requested bytes, aligned to 64; uninitialized
  // Claimed rows, 0 to kKvBlockPositions.
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
  // Limited only by the machine.
  static constexpr std::uint64_t kNoBudget = ~std::uint64_t{0};
  explicit KvPool(std::uint64_t budget_bytes);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  // Returns a block of `size` bytes with no claimed rows. Error: out_of_memory if the budget has no room for
  // it.
  Result<KvBlockRef> acquire(std::size_t size);

  // Bytes that a block of `size` bytes takes from the budget.
  static std::size_t block_bytes(std::size_t size);

  std::uint64_t used_bytes() const;
  std::uint64_t budget_bytes() const { return budget_bytes_; }
  // Bytes copied because a session wrote to a shared block. For tests.
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
