#pragma once
// Counts what operator new does, for tests of "this allocates nothing" and "this takes at most so much".
//
// Linking allocation_counter.cpp into a program replaces operator new and delete in all of it. Counters
// cover every thread. Memory taken by other means (posix_memalign, mmap) is not seen. Test code only.

#include <cstdint>

namespace moeflux {

class AllocationCounter {
 public:
  // Counting begins.
  AllocationCounter();

  // Calls of operator new since.
  std::uint64_t allocations() const;

  // The most bytes that were live at one time since, above what was live at the beginning: what malloc
  // set aside, its rounding up included and its own 8-byte headers not. One counter at a time.
  std::uint64_t peak_bytes() const;

 private:
  std::uint64_t allocations_before_;
  std::int64_t live_before_;
};

}  // namespace moeflux
