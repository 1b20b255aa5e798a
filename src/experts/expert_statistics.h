#pragma once
// What streaming experts took: counted by the scheduler, timed by the store. Plain values; differences and sums.

#include <chrono>
#include <cstdint>

namespace moeflux {

struct ExpertStatistics {
  // Experts that were wanted, once a layer and step.
  std::uint64_t hits = 0;    // in memory
  std::uint64_t misses = 0;  // had to be read
  std::uint64_t late = 0;    // were being read when they were wanted

  // Handed to the drive.
  std::uint64_t reads = 0;             // pieces of records
  std::uint64_t demanded_bytes = 0;    // because they were wanted
  std::uint64_t speculated_bytes = 0;  // because they might be
  std::uint64_t filled_bytes = 0;      // because there was room for all

  // What became of speculation; what is still unused is in none of them.
  std::uint64_t useful_bytes = 0;  // there in time
  std::uint64_t late_bytes = 0;    // wanted before they were there
  std::uint64_t wasted_bytes = 0;  // gone unused
  std::uint64_t useful_guesses = 0, late_guesses = 0,
                wrong_guesses = 0;  // the same, in records; wrong when not wanted

  std::chrono::nanoseconds waiting{0};  // a layer stood still for its experts
  std::chrono::nanoseconds reading{0};  // at least one read was out, as far as anybody looked

  std::uint64_t wanted() const { return hits + misses + late; }
  std::uint64_t read_bytes() const { return demanded_bytes + speculated_bytes + filled_bytes; }

  ExpertStatistics& operator+=(const ExpertStatistics& other);
  ExpertStatistics& operator-=(const ExpertStatistics& other);
  friend bool operator==(const ExpertStatistics&, const ExpertStatistics&) = default;
};

inline ExpertStatistics operator-(ExpertStatistics a, const ExpertStatistics& b) { return a -= b; }

}  // namespace moeflux
