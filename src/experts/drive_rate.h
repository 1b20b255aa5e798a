#pragma once
// How fast a drive is when it is busy, as seen by the one who hands it reads and collects them.
//
// A busy time begins when a read goes out and none was, and ends when none is out any more or enough bytes have
// passed; its rate counts when it moved enough to say something. Time is whatever the caller says. Plain arithmetic.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/sizes.h"

namespace moeflux {

class DriveRate {
 public:
  using Time = std::chrono::nanoseconds;

  void submitted(Time now, std::uint64_t bytes) {
    if (bytes_out_ == 0) restart(now);
    bytes_out_ += bytes;
  }
  void completed(Time now, std::uint64_t bytes) {
    bytes_out_ -= bytes;
    bytes_passed_ += bytes;
    if (bytes_out_ != 0 && bytes_passed_ < kEnoughBytes) return;
    busy_ += now - began_;
    if (bytes_passed_ >= kLeastBytes && now > began_) {
      const double rate =
          static_cast<double>(bytes_passed_) / std::chrono::duration<double>(now - began_).count();
      bytes_per_second_ = bytes_per_second_ == 0 ? rate : bytes_per_second_ + (rate - bytes_per_second_) / 8;
    }
    restart(now);
  }

  double bytes_per_second() const { return bytes_per_second_; }  // 0: not known yet
  // At least one read was out, up to `now`.
  Time busy(Time now) const { return busy_ + (bytes_out_ != 0 ? now - began_ : Time(0)); }

  // What it moves in `time`: a window of reads that keeps it busy for so long.
  std::uint64_t bytes_in(Time time, std::uint64_t least, std::uint64_t most) const {
    const double bytes = bytes_per_second_ * std::chrono::duration<double>(time).count();
    return std::clamp(static_cast<std::uint64_t>(bytes), least, most);
  }

 private:
  static constexpr std::uint64_t kLeastBytes = kMiB;
  static constexpr std::uint64_t kEnoughBytes = 16 * kMiB;

  void restart(Time now) {
    began_ = now;
    bytes_passed_ = 0;
  }

  Time began_{0}, busy_{0};
  std::uint64_t bytes_out_ = 0, bytes_passed_ = 0;
  double bytes_per_second_ = 0;
};

// Reads for guesses that are out keep the drive busy for so long: its latency, and the time until somebody looks again.
inline constexpr std::chrono::microseconds kGuessWindow{400};
inline constexpr std::uint64_t kLeastGuessWindowBytes = 128 * kKiB;
inline constexpr std::uint64_t kMostGuessWindowBytes = 16 * kMiB;

inline std::uint64_t guess_window_bytes(const DriveRate& rate) {
  return rate.bytes_in(kGuessWindow, kLeastGuessWindowBytes, kMostGuessWindowBytes);
}

}  // namespace moeflux
