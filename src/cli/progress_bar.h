#pragma once
// One line on a terminal with the progress, rate and remaining time of a long job. A no-op if standard error
// is not a terminal. One thread at a time.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace moeflux::cli {

// "packing 42 % [########..........] 91.3 GB of 217.4 GB, 1.31 GB/s, 1 min 36 s left". `kept_bytes` of
// `done_bytes` existed before the job and are not counted in the rate.
std::string progress_line(std::string_view label, std::uint64_t done_bytes, std::uint64_t kept_bytes,
                          std::uint64_t total_bytes, double seconds);

class ProgressBar {
 public:
  explicit ProgressBar(std::string_view label);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::uint64_t done_bytes, std::uint64_t kept_bytes, std::uint64_t total_bytes);

  double seconds() const;  // since construction

 private:
  std::string label_;
  bool visible_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace moeflux::cli
