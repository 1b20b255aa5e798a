#pragma once
// One line on a terminal that says how far a long job is, at what rate, and when it will end. Nothing at all where
// standard error is not a terminal. One thread at a time.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace moeflux::cli {

// "packing 42 % [########..........] 91.3 GB of 217.4 GB, 1.31 GB/s, 1 min 36 s left". `kept_bytes` of the done ones
// were there before and do not count for the rate.
std::string progress_line(std::string_view label, std::uint64_t done_bytes, std::uint64_t kept_bytes,
                          std::uint64_t total_bytes, double seconds);

class ProgressBar {
 public:
  explicit ProgressBar(std::string_view label);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::uint64_t done_bytes, std::uint64_t kept_bytes, std::uint64_t total_bytes);

  double seconds() const;  // since it was made

 private:
  std::string label_;
  bool visible_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace moeflux::cli
