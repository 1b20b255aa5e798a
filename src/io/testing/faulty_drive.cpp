#include "io/testing/faulty_drive.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "base/check.h"
#include "io/direct_io.h"
#include "io/drive/drive_files.h"

namespace moeflux {
namespace {

constexpr std::byte kGarbage{0xA5};
// How often a waiting drive checks whether its stuck reads were released.
constexpr std::chrono::nanoseconds kPollInterval = std::chrono::milliseconds(1);

// The next number of splitmix64.
std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15U;
  std::uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31);
}

}  // namespace

std::function<std::size_t(std::size_t count)> random_pick(std::uint64_t seed) {
  return [state = seed](std::size_t count) mutable { return next_random(state) % count; };
}

void DriveFaults::set_plan(DriveFaultPlan plan) {
  Lock lock(mutex_);
  plan_ = std::move(plan);
  next_index_ = 0;
}

void DriveFaults::release_stuck() {
  Lock lock(mutex_);
  ++releases_;
}

std::uint64_t DriveFaults::reads() const {
  Lock lock(mutex_);
  return reads_;
}

std::uint64_t DriveFaults::bytes() const {
  Lock lock(mutex_);
  return bytes_;
}

std::uint64_t DriveFaults::reads_in_flight() const {
  Lock lock(mutex_);
  return reads_in_flight_;
}

std::uint64_t DriveFaults::stuck() const {
  Lock lock(mutex_);
  return stuck_;
}

const DriveFault* DriveFaults::begin_read() {
  ++reads_;
  ++reads_in_flight_;
  const std::uint64_t index = next_index_++;
  for (const DriveFault& fault : plan_.faults) {
    if (index == fault.index || (fault.and_all_later && index > fault.index)) return &fault;
  }
  return nullptr;
}

FaultyDrive::FaultyDrive(std::unique_ptr<Drive> drive, std::shared_ptr<DriveFaults> faults)
    : drive_(std::move(drive)), faults_(std::move(faults)) {
  MF_REQUIRE(drive_ != nullptr && faults_ != nullptr, "drive and faults are not null");
  reads_.resize(drive_->depth());
  held_.reserve(drive_->depth());
}

FaultyDrive::~FaultyDrive() {
  Lock lock(faults_->mutex_);
  faults_->reads_in_flight_ -= in_drive_ + stuck_ + held_.size();
  faults_->stuck_ -= stuck_;
}

void FaultyDrive::submit(const DriveRead& read) {
  const auto free = std::find_if(reads_.begin(), reads_.end(),
                                 [](const TrackedRead& tracked) { return tracked.state == ReadState::free; });
  MF_REQUIRE(free != reads_.end(), "the queue of the drive is not full");
  start_released();
  DriveFault fault;
  {
    Lock lock(faults_->mutex_);
    const DriveFault* const found = faults_->begin_read();
    *free = {ReadState::in_drive, read, {}, found != nullptr};
    if (found != nullptr) fault = *found;
    free->fault = fault.kind;
    if (free->has_fault && fault.kind == DriveFaultKind::stuck) {
      free->state = ReadState::stuck;
      ++stuck_;
      ++faults_->stuck_;
    }
  }
  const auto index = static_cast<std::uint64_t>(free - reads_.begin());
  if (free->state == ReadState::stuck) return;
  if (free->has_fault && (fault.kind == DriveFaultKind::error || fault.kind == DriveFaultKind::end_of_file)) {
    free->state = ReadState::held;
    held_.push_back(
        {.tag = index, .error_number = fault.kind == DriveFaultKind::error ? fault.error_number : 0});
    return;
  }
  ++in_drive_;
  drive_->submit({index, read.file, read.offset, read.out});
}

void FaultyDrive::flush() {
  start_released();
  drive_->flush();
}

// Submits the stuck reads to the wrapped drive if release_stuck() was called.
void FaultyDrive::start_released() {
  {
    Lock lock(faults_->mutex_);
    if (std::exchange(releases_seen_, faults_->releases_) == faults_->releases_ || stuck_ == 0) return;
    faults_->stuck_ -= stuck_;
  }
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    TrackedRead& tracked = reads_[i];
    if (tracked.state != ReadState::stuck) continue;
    tracked.state = ReadState::in_drive;
    ++in_drive_;
    drive_->submit({i, tracked.read.file, tracked.read.offset, tracked.read.out});
  }
  stuck_ = 0;
  drive_->flush();
}

std::size_t FaultyDrive::collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) {
  const auto deadline = deadline_after(longest_wait);
  for (;;) {
    start_released();
    const bool has_all = in_drive_ + stuck_ == 0;
    const bool is_enough = has_all || (!held_.empty() && !has_pick());
    const auto left = is_enough ? std::chrono::nanoseconds{0} : deadline - std::chrono::steady_clock::now();
    poll_drive(std::max(left, std::chrono::nanoseconds{0}));
    // Stuck reads do not hold back completions.
    const bool is_held_back = has_pick() && in_drive_ > 0 && left > left.zero();
    if (!held_.empty() && !is_held_back) return next_ready(out);
    if (left <= left.zero()) return 0;
  }
}

// Moves completions from the wrapped drive to held_, waiting up to `longest_wait` for the first.
void FaultyDrive::poll_drive(std::chrono::nanoseconds longest_wait) {
  if (stuck_ > 0) longest_wait = std::min(longest_wait, kPollInterval);  // another thread may release them
  if (in_drive_ == 0) {
    if (stuck_ > 0 && held_.empty()) std::this_thread::sleep_for(longest_wait);
    return;
  }
  std::array<DriveCompletion, 16> completed;
  for (std::size_t count = drive_->collect(completed, longest_wait); count > 0;) {
    for (DriveCompletion& completion : std::span(completed).first(count)) {
      TrackedRead& tracked = reads_[completion.tag];
      tracked.state = ReadState::held;
      if (tracked.has_fault) apply_fault(tracked, completion);
      held_.push_back(completion);
      --in_drive_;
    }
    count = in_drive_ > 0 ? drive_->collect(completed, std::chrono::nanoseconds{0}) : 0;
  }
}

// Changes the bytes or the count of a completed read. Other faults are applied by submit().
void FaultyDrive::apply_fault(const TrackedRead& tracked, DriveCompletion& completion) const {
  if (completion.error_number != 0 || completion.bytes == 0) return;
  const std::span<std::byte> bytes = tracked.read.out.first(completion.bytes);
  if (tracked.fault == DriveFaultKind::flipped_bit) bytes[bytes.size() / 2] ^= std::byte{0x10};
  if (tracked.fault == DriveFaultKind::short_read && completion.bytes > kSectorBytes) {
    completion.bytes = std::max(completion.bytes / 2 / kSectorBytes * kSectorBytes, kSectorBytes);
    std::ranges::fill(bytes.subspan(completion.bytes), kGarbage);
  }
}

bool FaultyDrive::has_pick() const {
  Lock lock(faults_->mutex_);
  return faults_->plan_.pick != nullptr;
}

std::size_t FaultyDrive::next_ready(std::span<DriveCompletion> out) {
  Lock lock(faults_->mutex_);
  const auto& pick = faults_->plan_.pick;
  const std::size_t count = std::min({out.size(), held_.size(), pick ? std::size_t{1} : held_.size()});
  for (DriveCompletion& completion : out.first(count)) {
    const std::size_t picked = pick ? pick(held_.size()) : 0;
    MF_REQUIRE(picked < held_.size(), "pick(count) is less than count");
    completion = held_[picked];
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(picked));
    TrackedRead& tracked = reads_[completion.tag];
    completion.tag = tracked.read.tag;
    tracked.state = ReadState::free;
    faults_->bytes_ += completion.bytes;
    --faults_->reads_in_flight_;
  }
  return count;
}

}  // namespace moeflux
