#pragma once
// Estimates the rate of a drive while it is busy, from the submissions and completions that its caller
// reports.
//
// A busy period begins when a read is submitted to an idle drive. It ends when no read is in flight or
// kEnoughBytes have been read. Its rate is used if at least kLeastBytes were read. The caller provides the
// time. Plain arithmetic. One thread at a time.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/sizes.h"

namespace moeflux {

class DriveRate {
 public:
  using Time = std::chrono::nanoseconds;

  void submitted(Time now, std::uint64_t bytes) {
    if (bytes_in_flight_ == 0) restart(now);
    bytes_in_flight_ += bytes;
  }
  void completed(Time now, std::uint64_t bytes) {
    bytes_in_flight_ -= bytes;
    bytes_read_ += bytes;
    if (bytes_in_flight_ != 0 && bytes_read_ < kEnoughBytes) return;
    busy_ += now - began_;
    if (bytes_read_ >= kLeastBytes && now > began_) {
      const double rate =
          static_cast<double>(bytes_read_) / std::chrono::duration<double>(now - began_).count();
      bytes_per_second_ = bytes_per_second_ == 0 ? rate : bytes_per_second_ + (rate - bytes_per_second_) / 8;
    }
    restart(now);
  }

  double bytes_per_second() const { return bytes_per_second_; }  // 0: unknown
  // Total time up to `now` with at least one read in flight.
  Time busy(Time now) const { return busy_ + (bytes_in_flight_ != 0 ? now - began_ : Time(0)); }

  // Bytes that the drive reads in `time`, clamped to [least, most]: a window of reads that keeps it busy that
  // long.
  std::uint64_t bytes_in(Time time, std::uint64_t least, std::uint64_t most) const {
    const double bytes = bytes_per_second_ * std::chrono::duration<double>(time).count();
    return std::clamp(static_cast<std::uint64_t>(bytes), least, most);
  }

 private:
  static constexpr std::uint64_t kLeastBytes = kMiB;
  static constexpr std::uint64_t kEnoughBytes = 16 * kMiB;

  void restart(Time now) {
    began_ = now;
    bytes_read_ = 0;
  }

  Time began_{0}, busy_{0};
  std::uint64_t bytes_in_flight_ = 0, bytes_read_ = 0;
  double bytes_per_second_ = 0;
};

// Guesses in flight keep the drive busy for this long: its latency plus the time until the store is called
// again.
inline constexpr std::chrono::microseconds kGuessWindow{400};
inline constexpr std::uint64_t kLeastGuessWindowBytes = 128 * kKiB;
inline constexpr std::uint64_t kMostGuessWindowBytes = 16 * kMiB;

inline std::uint64_t guess_window_bytes(const DriveRate& rate) {
  return rate.bytes_in(kGuessWindow, kLeastGuessWindowBytes, kMostGuessWindowBytes);
}

}  // namespace moeflux
