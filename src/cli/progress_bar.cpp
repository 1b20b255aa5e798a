#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/sizes.h"

namespace moeflux::cli {
namespace {

constexpr std::size_t kBarCells = 20;
constexpr auto kBetweenDraws = std::chrono::milliseconds(100);
constexpr double kNoEstimateBefore = 0.5;  // seconds: a rate over less is noise

std::string duration(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

}  // namespace

std::string progress_line(std::string_view label, std::uint64_t done_bytes, std::uint64_t kept_bytes,
                          std::uint64_t total_bytes, double seconds) {
  const double share =
      total_bytes == 0 ? 1 : static_cast<double>(done_bytes) / static_cast<double>(total_bytes);
  const auto cells = std::min(kBarCells, static_cast<std::size_t>(share * static_cast<double>(kBarCells)));
  std::string line =
      fmt::format("{} {:3.0f} % [{}{}] {} of {}", label, share * 100, std::string(cells, '#'),
                  std::string(kBarCells - cells, '.'), human_bytes(done_bytes), human_bytes(total_bytes));
  const double rate = static_cast<double>(done_bytes - kept_bytes) / std::max(seconds, 1e-9);
  if (seconds < kNoEstimateBefore || rate <= 0) return line;
  return line + fmt::format(", {}/s, {} left", human_bytes(static_cast<std::uint64_t>(rate)),
                            duration(static_cast<double>(total_bytes - done_bytes) / rate));
}

ProgressBar::ProgressBar(std::string_view label)
    : label_(label), visible_(::isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

double ProgressBar::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void ProgressBar::update(std::uint64_t done_bytes, std::uint64_t kept_bytes, std::uint64_t total_bytes) {
  const auto now = std::chrono::steady_clock::now();
  if (!visible_ || (drawn_ && now - last_ < kBetweenDraws)) return;
  last_ = now;
  drawn_ = true;
  fmt::print(stderr, "\r\033[K{}", progress_line(label_, done_bytes, kept_bytes, total_bytes, seconds()));
  std::fflush(stderr);
}

}  // namespace moeflux::cli
