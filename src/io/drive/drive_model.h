#pragma once
// When each read of a simulated drive ends: arithmetic without a clock, for real and virtual time.
//
// One queue, served in the order of submission. The latencies of queued reads overlap, and they share the
// bandwidth: a read of n bytes submitted at time t ends at
//   max(t + latency, end of the read before) + n / bytes_per_second
// Times are relative to any fixed start. Plain value; one thread at a time.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/check.h"
#include "io/drive/drive.h"

namespace moeflux {

class DriveModel {
 public:
  using Time = std::chrono::nanoseconds;

  explicit DriveModel(SimulatedDriveSpeed speed) : speed_(speed) {
    MF_REQUIRE(speed.bytes_per_second > 0, "the bandwidth is at least 1 byte per second");
    MF_REQUIRE(speed.latency >= Time{0}, "the latency is not negative");
  }

  // Submits a read of `bytes` at time `now` and returns when it ends. Requires: `now` never decreases.
  Time submit(Time now, std::uint64_t bytes) {
    free_at_ = saturating_sum(std::max(saturating_sum(now, speed_.latency), free_at_), transfer_time(bytes));
    return free_at_;
  }

  // When the last submitted read ends.
  Time free_at() const { return free_at_; }

  // How long a transfer of `bytes` takes, rounded up.
  Time transfer_time(std::uint64_t bytes) const {
    __extension__ typedef unsigned __int128 Product;
    const Product scaled = Product{bytes} * std::uint64_t{std::nano::den};
    const Product ns = (scaled + speed_.bytes_per_second - 1) / speed_.bytes_per_second;
    return ns < Product{kNever.count()} ? Time(static_cast<Time::rep>(ns)) : kNever;
  }

 private:
  static constexpr Time kNever = Time::max();

  // Requires: both are at least 0.
  static Time saturating_sum(Time a, Time b) { return b > kNever - a ? kNever : a + b; }

  SimulatedDriveSpeed speed_;
  Time free_at_{0};
};

}  // namespace moeflux
