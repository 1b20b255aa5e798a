#include "io/simulated_drive.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/sizes.h"

namespace moeflux {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::nanoseconds time_now() { return Clock::now().time_since_epoch(); }

// In the largest unit that makes it a whole number: "100 us".
std::string describe_time(std::chrono::nanoseconds time) {
  constexpr std::int64_t kThousand = 1000;
  std::int64_t count = time.count();
  std::string_view unit = "ns";
  for (const std::string_view larger : {"us", "ms", "s"}) {
    if (count == 0 || count % kThousand != 0) break;
    count /= kThousand;
    unit = larger;
  }
  return fmt::format("{} {}", count, unit);
}

}  // namespace

SimulatedDrive::SimulatedDrive(DriveFiles files, SimulatedDriveSpeed speed, std::uint32_t depth)
    : files_(std::move(files)), speed_(speed), model_(speed), waiting_(depth) {}

std::string SimulatedDrive::describe() const {
  return fmt::format("simulated drive, {}/s, {}", human_bytes(speed_.bytes_per_second),
                     describe_time(speed_.latency));
}

void SimulatedDrive::submit(const DriveRead& read) {
  MF_REQUIRE(read.file < files_.count(), "a drive is asked for its own files");
  MF_REQUIRE(waiting_.size() < waiting_.capacity(), "no more reads are out than a drive is deep");
  waiting_.push({read, model_.submit(time_now(), read.out.size())});
}

std::size_t SimulatedDrive::collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) {
  const std::size_t count = take_ended(out);
  if (count != 0 || out.empty() || waiting_.empty() || longest_wait <= longest_wait.zero()) return count;
  std::this_thread::sleep_until(
      std::min(deadline_after(longest_wait), Clock::time_point(waiting_.front().ends_at)));
  return take_ended(out);
}

std::size_t SimulatedDrive::take_ended(std::span<DriveCompletion> out) {
  const std::chrono::nanoseconds now = time_now();
  std::size_t count = 0;
  while (count < out.size() && !waiting_.empty() && waiting_.front().ends_at <= now) {
    out[count++] = files_.read(waiting_.pop().read);
  }
  return count;
}

}  // namespace moeflux
