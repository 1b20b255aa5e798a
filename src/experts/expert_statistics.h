#pragma once
// Statistics of expert streaming: counted by the scheduler, timed by the store. Plain values.
//
// MF_EXPERT_COUNTERS and MF_EXPERT_TIMES list the fields. Sums, JSON and the copy into the C struct follow
// from the lists; the C struct itself is in moeflux.h.

#include <chrono>
#include <cstdint>

namespace moeflux {

// X(name) for each field of ExpertStatistics, in the order of declaration.
#define MF_EXPERT_COUNTERS(X) \
  X(hits)                     \
  X(misses)                   \
  X(late)                     \
  X(reads)                    \
  X(demanded_bytes)           \
  X(speculated_bytes)         \
  X(filled_bytes)             \
  X(useful_bytes)             \
  X(late_bytes)               \
  X(wasted_bytes)             \
  X(useful_guesses)           \
  X(late_guesses)             \
  X(wrong_guesses)
#define MF_EXPERT_TIMES(X) \
  X(waiting)               \
  X(reading)

struct ExpertStatistics {
  // Wanted experts, each counted once per layer and step.
  std::uint64_t hits = 0;    // in memory
  std::uint64_t misses = 0;  // not in memory
  std::uint64_t late = 0;    // being read when they were wanted

  // Submitted to the drive.
  std::uint64_t reads = 0;             // pieces of records
  std::uint64_t demanded_bytes = 0;    // of wanted experts
  std::uint64_t speculated_bytes = 0;  // of guesses
  std::uint64_t filled_bytes = 0;      // of the rest, while the drive was idle and every record has a slot

  // Outcomes of guesses. A guess that is still unused is not counted.
  std::uint64_t useful_bytes = 0;  // ready when wanted
  std::uint64_t late_bytes = 0;    // still being read when wanted
  std::uint64_t wasted_bytes = 0;  // evicted or cancelled unused
  // The same in records. A guess is wrong if its layer does not want it.
  std::uint64_t useful_guesses = 0, late_guesses = 0, wrong_guesses = 0;

  std::chrono::nanoseconds waiting{0};  // time in which a layer waited for its experts
  std::chrono::nanoseconds reading{0};  // time with a read in flight, as seen when the store was called

  std::uint64_t wanted() const { return hits + misses + late; }
  std::uint64_t read_bytes() const { return demanded_bytes + speculated_bytes + filled_bytes; }

  ExpertStatistics& operator+=(const ExpertStatistics& other);
  ExpertStatistics& operator-=(const ExpertStatistics& other);
  friend bool operator==(const ExpertStatistics&, const ExpertStatistics&) = default;
};

#define MF_COUNT_FIELD(name) +1
static_assert(sizeof(ExpertStatistics) == sizeof(std::uint64_t) * (0 MF_EXPERT_COUNTERS(MF_COUNT_FIELD)
                                                                       MF_EXPERT_TIMES(MF_COUNT_FIELD)),
              "every field is in one of the lists");
#undef MF_COUNT_FIELD

inline ExpertStatistics operator-(ExpertStatistics a, const ExpertStatistics& b) { return a -= b; }

}  // namespace moeflux
