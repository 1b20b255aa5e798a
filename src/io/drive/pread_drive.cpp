#include "io/drive/pread_drive.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/check.h"

namespace moeflux {

Result<std::unique_ptr<PreadDrive>> PreadDrive::start(DriveFiles files, const DriveOptions& options) {
  std::unique_ptr<PreadDrive> drive(new PreadDrive(std::move(files), options));
  drive->start_threads(options.threads);
  if (drive->threads_.empty()) {
    return Error{
        ErrorCode::io_failed,
        "cannot start a thread to read files; check the limit of processes ('ulimit -u' or TasksMax=)"};
  }
  return drive;
}

PreadDrive::PreadDrive(DriveFiles files, const DriveOptions& options)
    : files_(std::move(files)),
      depth_(options.depth),
      drops_from_page_cache_(options.drop_from_page_cache && !files_.is_direct()),
      queued_(options.depth),
      completed_(options.depth) {
  if (!files_.is_direct()) files_.advise_random_reads();
}

void PreadDrive::start_threads(unsigned wanted) {
  threads_.reserve(wanted);
  try {
    while (threads_.size() < wanted) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // The threads that did start do the reads.
  }
}

PreadDrive::~PreadDrive() {
  {
    Lock lock(mutex_);
    is_stopping_ = true;
  }
  has_queued_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::string PreadDrive::describe() const {
  return fmt::format("{} thread{}, {}", threads_.size(), threads_.size() == 1 ? "" : "s",
                     files_.is_direct() ? "direct reads" : "page cache");
}

void PreadDrive::submit(const DriveRead& read) {
  MF_REQUIRE(read.file < files_.count(), "the file is one of the drive's");
  MF_REQUIRE(in_flight_ < depth_, "the queue of the drive is not full");
  ++in_flight_;
  ++unflushed_;
  Lock lock(mutex_);
  queued_.push(read);
}

void PreadDrive::flush() {
  if (unflushed_ >= threads_.size()) {
    has_queued_.notify_all();
  } else {
    for (std::uint32_t i = 0; i < unflushed_; ++i) has_queued_.notify_one();
  }
  unflushed_ = 0;
}

std::size_t PreadDrive::collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) {
  const bool waits = longest_wait > longest_wait.zero() && !out.empty() && in_flight_ > 0;
  if (waits) flush();
  std::size_t count = 0;
  {
    Lock lock(mutex_);
    if (waits) {
      const auto deadline = deadline_after(longest_wait);
      while (completed_.empty() && has_completed_.wait_until(mutex_, deadline)) {
      }
    }
    count = take_completed(out);
  }
  in_flight_ -= static_cast<std::uint32_t>(count);
  return count;
}

std::size_t PreadDrive::take_completed(std::span<DriveCompletion> out) {
  std::size_t count = 0;
  while (count < out.size() && !completed_.empty()) out[count++] = completed_.pop();
  return count;
}

void PreadDrive::work() {
  for (;;) {
    DriveRead read;
    {
      Lock lock(mutex_);
      while (queued_.empty() && !is_stopping_) has_queued_.wait(mutex_);
      if (is_stopping_) return;
      read = queued_.pop();
    }
    const DriveCompletion completion = files_.read(read);
    if (drops_from_page_cache_) files_.drop_from_page_cache(read);
    {
      Lock lock(mutex_);
      completed_.push(completion);
    }
    has_completed_.notify_one();
  }
}

}  // namespace moeflux
