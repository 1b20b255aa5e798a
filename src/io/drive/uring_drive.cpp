#include "io/drive/uring_drive.h"

#include <fmt/format.h>
#include <liburing.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/memory/populate.h"
#include "base/sizes.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxBufferBytes = kGiB;  // the kernel's limit
constexpr std::uint32_t kMaxRetries = 8;       // of one read, and of a submission
constexpr std::chrono::nanoseconds kRetryDelay = std::chrono::milliseconds(1);

// Errors that say nothing about the read: a signal, a temporary shortage, or the end of the submitting
// thread.
bool is_transient(int error_number) {
  return error_number == EINTR || error_number == EAGAIN || error_number == EBUSY ||
         error_number == ECANCELED;
}

// Submits a no-op and waits for it. Returns 0 or the errno: some sandboxes allow creating a ring and nothing
// else.
int try_ring(io_uring* ring) {
  io_uring_sqe* const request = io_uring_get_sqe(ring);
  io_uring_prep_nop(request);
  const int submitted = io_uring_submit(ring);
  if (submitted != 1) return submitted < 0 ? -submitted : EAGAIN;
  io_uring_cqe* completion = nullptr;
  int waited = io_uring_wait_cqe(ring, &completion);
  while (waited == -EINTR) waited = io_uring_wait_cqe(ring, &completion);
  if (waited < 0) return -waited;
  io_uring_cqe_seen(ring, completion);
  return 0;
}

constexpr std::string_view kRaiseMemlock =
    "; to allow it, raise the limit of locked memory ('ulimit -l' or LimitMEMLOCK=)";
constexpr std::string_view kRaiseOpenFiles =
    "; to allow it, raise the limit of open files ('ulimit -n' or LimitNOFILE=)";

std::string_view remedy_for_ring(int error_number) {
  switch (error_number) {
    case EPERM:
    case EACCES:
      return "; to allow it, set the sysctl kernel.io_uring_disabled to 0, or allow io_uring_setup, "
             "io_uring_enter "
             "and io_uring_register in the container's seccomp profile";
    case ENOSYS: return "; it needs Linux 5.11 or later, and a sandbox that allows it";
    case ENOMEM: return kRaiseMemlock;
    case EMFILE: return kRaiseOpenFiles;
    default: return "";
  }
}

std::string_view remedy_for_registration(int error_number) {
  switch (error_number) {
    case EPERM:
    case EACCES:
    case ENOSYS: return "; to allow it, allow io_uring_register in the container's seccomp profile";
    case ENOMEM: return kRaiseMemlock;
    case EMFILE: return kRaiseOpenFiles;
    default: return "";
  }
}

// Raises the soft limit to the hard limit, which needs no privilege.
void raise_memlock_limit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_MEMLOCK, &limit);
}

// Whether the limit allows this process to lock `bytes`, or does not apply to it (CAP_IPC_LOCK).
bool may_lock(std::uint64_t bytes) {
  rlimit limit;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
      (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes))
    return true;
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3] = {};
  return ::syscall(SYS_capget, &header, rights) == 0 && (rights[0].effective >> CAP_IPC_LOCK & 1) != 0;
}

std::string describe_memlock_limit() {
  rlimit limit;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "an unknown number of bytes";
  return limit.rlim_cur == RLIM_INFINITY ? "any number of bytes" : human_bytes(limit.rlim_cur);
}

}  // namespace

std::vector<std::span<std::byte>> buffers_of(std::span<const std::span<std::byte>> regions) {
  std::vector<std::span<std::byte>> buffers;
  for (std::span<std::byte> region : regions) {
    if (region.empty()) continue;
    // Equal parts, because a read that crosses a boundary cannot use a fixed buffer: a short last part would
    // be crossed more often.
    const std::size_t parts = divide_up(region.size(), kMaxBufferBytes);
    const std::size_t part_bytes =
        divide_up(divide_up(region.size(), parts), kDriveAlignment) * kDriveAlignment;
    while (!region.empty()) {
      buffers.push_back(region.first(std::min(part_bytes, region.size())));
      region = region.subspan(buffers.back().size());
    }
  }
  std::sort(buffers.begin(), buffers.end(),
            [](auto a, auto b) { return std::less<const std::byte*>()(a.data(), b.data()); });
  return buffers;
}

void UringDrive::EndRing::operator()(io_uring* ring) const {
  io_uring_queue_exit(ring);
  delete ring;
}

std::unique_ptr<UringDrive> UringDrive::open(DriveFiles& files, const DriveOptions& options,
                                             std::vector<std::string>& refusals) {
  MF_REQUIRE(files.is_direct(), "the files are open for direct reads");
  Ring ring = make_ring(options.depth, refusals);
  if (!ring) return nullptr;
  std::unique_ptr<UringDrive> drive(new UringDrive(std::move(ring), std::move(files), options.depth));
  drive->register_files(refusals);
  if (options.uses_fixed_buffers) drive->register_buffers(options.memory, refusals);
  return drive;
}

UringDrive::UringDrive(Ring ring, DriveFiles files, std::uint32_t depth)
    : ring_(std::move(ring)),
      files_(std::move(files)),
      slots_(depth),
      free_(depth),
      queued_(depth),
      failed_(depth) {
  std::iota(free_.rbegin(), free_.rend(), 0U);  // the lowest slot is used first
}

UringDrive::Ring UringDrive::make_ring(std::uint32_t depth, std::vector<std::string>& refusals) {
  const auto refuse = [&](int error_number) {
    refusals.push_back(fmt::format("io_uring is refused ({}); reading with pread{}",
                                   name_of_errno(error_number), remedy_for_ring(error_number)));
    return Ring();
  };
  // With these flags completions do not interrupt the computing thread: the kernel delivers them when the
  // thread enters it next, and sets a flag in the ring when there are some. They need Linux 5.19 or later.
  auto memory = std::make_unique<io_uring>();
  io_uring_params params = {};
  params.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
  int made = io_uring_queue_init_params(depth, memory.get(), &params);
  if (made == -EINVAL) {
    params = {};
    made = io_uring_queue_init_params(depth, memory.get(), &params);
  }
  if (made < 0) return refuse(-made);
  Ring ring(memory.release());
  // EXT_ARG: waiting with a timeout. NODROP: the kernel never drops completions.
  if ((params.features & IORING_FEAT_EXT_ARG) == 0 || (params.features & IORING_FEAT_NODROP) == 0) {
    return refuse(ENOSYS);
  }
  const int error_number = try_ring(ring.get());
  if (error_number != 0) return refuse(error_number);
  return ring;
}

void UringDrive::register_files(std::vector<std::string>& refusals) {
  std::vector<int> descriptors;
  for (std::uint32_t file = 0; file < files_.count(); ++file) descriptors.push_back(files_.descriptor(file));
  const int fixed =
      io_uring_register_files(ring_.get(), descriptors.data(), static_cast<unsigned>(descriptors.size()));
  has_fixed_files_ = fixed == 0;
  if (has_fixed_files_) return;
  refusals.push_back(fmt::format("fixed files are refused ({}); io_uring reads without them{}",
                                 name_of_errno(-fixed), remedy_for_registration(-fixed)));
}

void UringDrive::register_buffers(std::span<const std::span<std::byte>> memory,
                                  std::vector<std::string>& refusals) {
  std::vector<std::span<std::byte>> buffers = buffers_of(memory);
  if (buffers.empty()) return;
  std::vector<iovec> vectors;
  std::uint64_t bytes = 0;
  for (const std::span<std::byte> buffer : buffers) {
    vectors.push_back({buffer.data(), buffer.size()});
    bytes += buffer.size();
  }
  raise_memlock_limit();
  // Registering would fault the pages in with one thread; populate() uses several. Skipped if registering
  // will be refused: then each page is faulted in by the first read into it.
  if (may_lock(bytes))
    for (const std::span<std::byte> buffer : buffers) populate(buffer);
  const int fixed =
      io_uring_register_buffers(ring_.get(), vectors.data(), static_cast<unsigned>(vectors.size()));
  if (fixed == 0) {
    buffers_ = std::move(buffers);
    return;
  }
  const std::string amounts = fixed == -ENOMEM ? fmt::format(": they lock {}, the limit is {}",
                                                             human_bytes(bytes), describe_memlock_limit())
                                               : "";
  refusals.push_back(fmt::format("fixed buffers are refused ({}){}; io_uring reads without them{}",
                                 name_of_errno(-fixed), amounts, remedy_for_registration(-fixed)));
}

UringDrive::~UringDrive() {
  std::array<DriveCompletion, 16> dropped;
  while (in_kernel_ > 0) {
    if (take_completed(dropped) == 0 && in_kernel_ > 0) wait_for_kernel(std::chrono::seconds(1));
  }
  // The kernel destroys a ring some time after it is closed. Unlock the memory now, because the caller may
  // free it or lock it for another drive.
  if (has_fixed_buffers()) io_uring_unregister_buffers(ring_.get());
}

std::string UringDrive::describe() const {
  return has_fixed_buffers() ? "io_uring, direct reads, fixed buffers" : "io_uring, direct reads";
}

void UringDrive::submit(const DriveRead& read) {
  MF_REQUIRE(read.file < files_.count(), "the file is one of the drive's");
  MF_REQUIRE(!free_.empty(), "the queue of the drive is not full");
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  slots_[slot] = {read};
  const int invalid = range_error(read);
  if (invalid != 0) {
    failed_.push({slot, invalid});
  } else {
    queue(slot);
  }
}

std::optional<int> UringDrive::fixed_buffer_of(std::span<const std::byte> memory) const {
  const std::less<const std::byte*> is_before;
  const auto next =
      std::upper_bound(buffers_.begin(), buffers_.end(), memory.data(),
                       [&](const std::byte* data, auto buffer) { return is_before(data, buffer.data()); });
  if (next == buffers_.begin() || memory.empty()) return std::nullopt;
  const std::span<const std::byte> buffer = next[-1];
  const auto offset = static_cast<std::size_t>(memory.data() - buffer.data());
  if (offset > buffer.size() || memory.size() > buffer.size() - offset) return std::nullopt;
  return static_cast<int>(next - buffers_.begin()) - 1;
}

void UringDrive::queue(std::uint32_t slot) {
  const DriveRead& read = slots_[slot].read;
  // The ring has an entry per slot, and each slot is in it at most once.
  io_uring_sqe* const request = io_uring_get_sqe(ring_.get());
  MF_REQUIRE(request != nullptr, "the ring is as deep as the drive");

  const auto size = static_cast<std::uint32_t>(std::min(read.out.size(), kMaxDriveReadBytes));
  const int file = has_fixed_files_ ? static_cast<int>(read.file) : files_.descriptor(read.file);
  const std::optional<int> buffer = fixed_buffer_of(read.out.first(size));
  if (buffer) {
    io_uring_prep_read_fixed(request, file, read.out.data(), size, read.offset, *buffer);
  } else {
    io_uring_prep_read(request, file, read.out.data(), size, read.offset);
  }
  if (has_fixed_files_) io_uring_sqe_set_flags(request, IOSQE_FIXED_FILE);
  io_uring_sqe_set_data64(request, slot);
  queued_.push(slot);
}

void UringDrive::flush() {
  for (std::uint32_t attempts = 0; !queued_.empty();) {
    const int submitted = io_uring_submit(ring_.get());
    if (submitted > 0) {
      for (int i = 0; i < submitted; ++i) queued_.pop();
      in_kernel_ += static_cast<std::uint32_t>(submitted);
      continue;
    }
    const int error_number = submitted == 0 ? EAGAIN : -submitted;
    const bool may_retry = is_transient(error_number);
    if (may_retry && in_kernel_ > 0) return;  // collecting them makes room, and collect() flushes again
    if (may_retry && ++attempts < kMaxRetries) {
      std::this_thread::sleep_for(kRetryDelay);
    } else {
      fail_queued(error_number);
    }
  }
}

// Removes the queued requests, which the kernel did not accept, from the ring. The kernel reads the ring only
// during a submission, so the tail may be moved back to the head.
void UringDrive::fail_queued(int error_number) {
  io_uring_sq& ring = ring_->sq;
  const unsigned head = *ring.khead;
  ring.sqe_head = head;
  ring.sqe_tail = head;
  io_uring_smp_store_release(ring.ktail, head);
  while (!queued_.empty()) failed_.push({queued_.pop(), error_number});
}

std::size_t UringDrive::collect(std::span<DriveCompletion> out, std::chrono::nanoseconds longest_wait) {
  std::size_t count = take_ready(out);
  if (count != 0 || out.empty() || longest_wait <= longest_wait.zero()) return count;
  const auto deadline = deadline_after(longest_wait);
  for (;;) {
    flush();
    count = take_ready(out);
    if (count != 0 || in_kernel_ + queued_.size() == 0) return count;
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) return 0;
    if (in_kernel_ > 0) wait_for_kernel(left);
  }
}

// Waits until a read has completed, or up to `longest_wait`.
void UringDrive::wait_for_kernel(std::chrono::nanoseconds longest_wait) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest_wait);
  __kernel_timespec timeout = {};
  timeout.tv_sec = seconds.count();
  timeout.tv_nsec = (longest_wait - seconds).count();
  io_uring_cqe* finished = nullptr;
  const int waited = io_uring_wait_cqe_timeout(ring_.get(), &finished, &timeout);
  if (waited == 0 || waited == -ETIME || waited == -EINTR) return;
  // The kernel refuses to wait. It still delivers completions whenever this thread enters it.
  std::this_thread::sleep_for(std::min(longest_wait, kRetryDelay));
}

std::size_t UringDrive::take_ready(std::span<DriveCompletion> out) {
  const std::size_t count = take_failed(out);
  return count + take_completed(out.subspan(count));
}

std::size_t UringDrive::take_failed(std::span<DriveCompletion> out) {
  std::size_t count = 0;
  while (count < out.size() && !failed_.empty()) {
    const FailedSlot failed = failed_.pop();
    out[count++] = complete(failed.slot, -failed.error_number);
  }
  return count;
}

std::size_t UringDrive::take_completed(std::span<DriveCompletion> out) {
  std::size_t count = 0;
  bool is_queued_again = false;
  std::array<io_uring_cqe*, 32> completed;
  while (count < out.size() && in_kernel_ > 0) {
    // Makes a system call only if the kernel has set the flag that completions are pending.
    const auto wanted = static_cast<unsigned>(std::min(completed.size(), out.size() - count));
    const unsigned ready = io_uring_peek_batch_cqe(ring_.get(), completed.data(), wanted);
    if (ready == 0) break;
    in_kernel_ -= ready;
    for (unsigned i = 0; i < ready; ++i) {
      const auto slot = static_cast<std::uint32_t>(io_uring_cqe_get_data64(completed[i]));
      const std::int32_t result = completed[i]->res;
      if (result < 0 && is_transient(-result) && slots_[slot].retries < kMaxRetries) {
        ++slots_[slot].retries;
        queue(slot);
        is_queued_again = true;
      } else {
        out[count++] = complete(slot, result);
      }
    }
    io_uring_cq_advance(ring_.get(), ready);
  }
  if (is_queued_again) flush();
  return count;
}

DriveCompletion UringDrive::complete(std::uint32_t slot, std::int32_t result) {
  free_.push_back(slot);
  const std::uint64_t tag = slots_[slot].read.tag;
  if (result < 0) return {.tag = tag, .error_number = -result};
  return {.tag = tag, .bytes = static_cast<std::uint64_t>(result)};
}

}  // namespace moeflux
