#include "io/pread_drive.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/check.h"

namespace moeflux {

Result<std::unique_ptr<PreadDrive>> PreadDrive::start(DriveFiles files, const DriveOptions& options) {
  std::unique_ptr<PreadDrive> drive(new PreadDrive(std::move(files), options));
  drive->start_threads(options.threads);
  if (drive->threads_.empty()) {
    return Error{ErrorCode::io_failed,
                 "cannot read files: the system starts no thread for it; look at the limit of processes "
                 "('ulimit -u', TasksMax)"};
  }
  return drive;
}

PreadDrive::PreadDrive(DriveFiles files, const DriveOptions& options)
    : files_(std::move(files)),
      depth_(options.depth),
      drops_from_page_cache_(options.drop_from_page_cache && !files_.is_direct()),
      waiting_(options.depth),
      ended_(options.depth) {
  if (!files_.is_direct()) files_.expect_random_reads();
}

void PreadDrive::start_threads(unsigned wanted) {
  threads_.reserve(wanted);
  try {
    while (threads_.size() < wanted) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // Those that did start do the reading.
  }
}

PreadDrive::~PreadDrive() {
  {
    Lock lock(mutex_);
    is_ending_ = true;
  }
  has_waiting_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::string PreadDrive::describe() const {
  return fmt::format("{} thread{}, {}", threads_.size(), threads_.size() == 1 ? "" : "s",
                     files_.is_direct() ? "direct reads" : "page cache");
}

void PreadDrive::submit(const DriveRead& read) {
  MF_REQUIRE(read.file < files_.count(), "a drive is asked for its own files");
  MF_REQUIRE(out_ < depth_, "no more reads are out than a drive is deep");
  ++out_;
  ++unflushed_;
  Lock lock(mutex_);
  waiting_.push(read);
}

void PreadDrive::flush() {
  if (unflushed_ >= threads_.size()) {
    has_waiting_.notify_all();
  } else {
    for (std::uint32_t i = 0; i < unflushed_; ++i) has_waiting_.notify_one();
  }
  unflushed_ = 0;
}

std::size_t PreadDrive::collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) {
  const bool waits = longest_wait > longest_wait.zero() && !out.empty() && out_ > 0;
  if (waits) flush();
  std::size_t count = 0;
  {
    Lock lock(mutex_);
    if (waits) {
      const auto deadline = deadline_after(longest_wait);
      while (ended_.empty() && has_ended_.wait_until(mutex_, deadline)) {
      }
    }
    count = take_ended(out);
  }
  out_ -= static_cast<std::uint32_t>(count);
  return count;
}

std::size_t PreadDrive::take_ended(std::span<DriveCompletion> out) {
  std::size_t count = 0;
  while (count < out.size() && !ended_.empty()) out[count++] = ended_.pop();
  return count;
}

void PreadDrive::work() {
  for (;;) {
    DriveRead read;
    {
      Lock lock(mutex_);
      while (waiting_.empty() && !is_ending_) has_waiting_.wait(mutex_);
      if (is_ending_) return;
      read = waiting_.pop();
    }
    const DriveCompletion completion = files_.read(read);
    if (drops_from_page_cache_) files_.drop_from_page_cache(read);
    {
      Lock lock(mutex_);
      ended_.push(completion);
    }
    has_ended_.notify_one();
  }
}

}  // namespace moeflux
