#pragma once
// Memory for keys and values: blocks, shared by all sessions of an engine.
//
// A block is memory for kKvBlockPositions positions of one layer. The pool grows with use, up to a budget; what is
// given back is used again, and what is in use never moves. A new block's contents are indeterminate.
//
// Sizes of blocks are few (one a kind of layer), so each has a list of free blocks, threaded through the blocks
// themselves: acquire() and release() allocate nothing on the heap. Thread-safe. Outlives its blocks.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_annotations.h"

namespace moeflux {

inline constexpr std::uint32_t kKvBlockPositions = 256;

class KvPool {
 public:
  // No limit but the machine's: kNoBudget.
  static constexpr std::uint64_t kNoBudget = ~std::uint64_t{0};
  explicit KvPool(std::uint64_t budget_bytes);
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  // `size` bytes at 64. Beyond the budget it is out_of_memory, with both numbers.
  Result<std::byte*> acquire(std::size_t size);
  void release(std::byte* block, std::size_t size);

  std::uint64_t used_bytes() const;
  std::uint64_t budget_bytes() const { return budget_bytes_; }

 private:
  struct FreeBlock {
    FreeBlock* next;
  };
  struct SizeClass {
    std::size_t size;
    FreeBlock* free;
  };

  SizeClass& class_of(std::size_t size) MF_REQUIRES(mutex_);
  Status grow(SizeClass& size_class) MF_REQUIRES(mutex_);

  const std::uint64_t budget_bytes_;
  mutable Mutex mutex_;
  std::vector<HugeBuffer> slabs_ MF_GUARDED_BY(mutex_);
  std::vector<SizeClass> classes_ MF_GUARDED_BY(mutex_);
  std::uint64_t used_bytes_ MF_GUARDED_BY(mutex_) = 0;
};

}  // namespace moeflux
