#pragma once
// Counts the calls and bytes of operator new, for tests that code allocates nothing or stays within a memory
// bound.
//
// Linking allocation_counter.cpp replaces operator new and delete in the whole program. Counters include all
// threads, but not memory from other functions (posix_memalign, mmap). Test code only.

#include <cstdint>

namespace moeflux {

class AllocationCounter {
 public:
  // Starts counting.
  AllocationCounter();

  // Calls of operator new since the start.
  std::uint64_t allocations() const;

  // The peak of live bytes since the start, minus the bytes that were live at the start. Includes the
  // rounding of malloc, but not its 8-byte headers. Only one counter at a time may be used for this.
  std::uint64_t peak_bytes() const;

 private:
  std::uint64_t allocations_before_;
  std::int64_t live_before_;
};

}  // namespace moeflux
