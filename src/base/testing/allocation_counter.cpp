#include "base/testing/allocation_counter.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace moeflux {
namespace {

std::atomic<std::uint64_t> allocation_count = 0;
std::atomic<std::int64_t> live_bytes = 0;
std::atomic<std::int64_t> peak_live_bytes = 0;

// Null if there is no memory.
void* take(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) {
  void* memory = nullptr;
  if (::posix_memalign(&memory, std::max(alignment, sizeof(void*)), std::max<std::size_t>(size, 1)) != 0) {
    return nullptr;
  }
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  const auto taken = static_cast<std::int64_t>(::malloc_usable_size(memory));
  const std::int64_t live = live_bytes.fetch_add(taken, std::memory_order_relaxed) + taken;
  std::int64_t peak = peak_live_bytes.load(std::memory_order_relaxed);
  while (peak < live && !peak_live_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  return memory;
}

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) {
  if (memory == nullptr) return;
  live_bytes.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

AllocationCounter::AllocationCounter()
    : allocations_before_(allocation_count.load()), live_before_(live_bytes.load()) {
  peak_live_bytes.store(live_before_);
}

std::uint64_t AllocationCounter::allocations() const { return allocation_count.load() - allocations_before_; }

std::uint64_t AllocationCounter::peak_bytes() const {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, peak_live_bytes.load() - live_before_));
}

}  // namespace moeflux

// Every form, because the sanitizers define their own, which would not call our plain form.
void* operator new(std::size_t size) { return moeflux::or_throw(moeflux::take(size)); }
void* operator new[](std::size_t size) { return ::operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return moeflux::take(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return moeflux::take(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return moeflux::or_throw(moeflux::take(size, static_cast<std::size_t>(alignment)));
}
void* operator new[](std::size_t size, std::align_val_t alignment) { return ::operator new(size, alignment); }

void operator delete(void* memory) noexcept { moeflux::release(memory); }
void operator delete[](void* memory) noexcept { moeflux::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { moeflux::release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { moeflux::release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { moeflux::release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { moeflux::release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { moeflux::release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { moeflux::release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { moeflux::release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { moeflux::release(memory); }
