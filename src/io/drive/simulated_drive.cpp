#include "io/drive/simulated_drive.h"

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

// As a whole number in the largest possible unit: "100 us".
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
    : files_(std::move(files)), speed_(speed), model_(speed), queued_(depth) {}

std::string SimulatedDrive::describe() const {
  return fmt::format("simulated drive, {}/s, {}", human_bytes(speed_.bytes_per_second),
                     describe_time(speed_.latency));
}

void SimulatedDrive::submit(const DriveRead& read) {
  MF_REQUIRE(read.file < files_.count(), "the file is one of the drive's");
  MF_REQUIRE(queued_.size() < queued_.capacity(), "the queue of the drive is not full");
  queued_.push({read, model_.submit(time_now(), read.out.size())});
}

std::size_t SimulatedDrive::collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) {
  const std::size_t count = take_completed(out);
  if (count != 0 || out.empty() || queued_.empty() || longest_wait <= longest_wait.zero()) return count;
  std::this_thread::sleep_until(
      std::min(deadline_after(longest_wait), Clock::time_point(queued_.front().ends_at)));
  return take_completed(out);
}

std::size_t SimulatedDrive::take_completed(std::span<DriveCompletion> out) {
  const std::chrono::nanoseconds now = time_now();
  std::size_t count = 0;
  while (count < out.size() && !queued_.empty() && queued_.front().ends_at <= now) {
    out[count++] = files_.read(queued_.pop().read);
  }
  return count;
}

}  // namespace moeflux
