#pragma once
// When the reads of a simulated drive end: arithmetic without a clock, for real time and for virtual time.
//
// One queue, served in the order of submission. The latencies of waiting reads overlap, the bandwidth is
// theirs together: a read of n bytes that is submitted at t ends at
//   max(t + latency, end of the read before) + n / bytes_per_second
// Times are counted from any beginning. Plain value, one thread at a time.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/check.h"
#include "io/drive.h"

namespace moeflux {

class DriveModel {
 public:
  using Time = std::chrono::nanoseconds;

  explicit DriveModel(SimulatedDriveSpeed speed) : speed_(speed) {
    MF_REQUIRE(speed.bytes_per_second > 0, "a drive moves bytes");
    MF_REQUIRE(speed.latency >= Time{0}, "a drive does not answer before it is asked");
  }

  // When a read of `bytes` that is submitted `now` ends. Submissions come in the order of time.
  Time submit(Time now, std::uint64_t bytes) {
    free_at_ = saturating_sum(std::max(saturating_sum(now, speed_.latency), free_at_), transfer_time(bytes));
    return free_at_;
  }

  // When the last of the reads so far ends.
  Time free_at() const { return free_at_; }

  // How long `bytes` keep the drive busy, rounded up.
  Time transfer_time(std::uint64_t bytes) const {
    __extension__ typedef unsigned __int128 Product;
    const Product scaled = Product{bytes} * std::uint64_t{std::nano::den};
    const Product ns = (scaled + speed_.bytes_per_second - 1) / speed_.bytes_per_second;
    return ns < Product{kNever.count()} ? Time(static_cast<Time::rep>(ns)) : kNever;
  }

 private:
  static constexpr Time kNever = Time::max();

  // Both are at least 0.
  static Time saturating_sum(Time a, Time b) { return b > kNever - a ? kNever : a + b; }

  SimulatedDriveSpeed speed_;
  Time free_at_{0};
};

}  // namespace moeflux
