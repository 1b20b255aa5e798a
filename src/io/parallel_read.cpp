#include "io/parallel_read.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/thread_annotations.h"
#include "base/thread_pool.h"

namespace moeflux {
namespace {

// A read cut into parts, which threads take in file order. So all parts before a failed one have been taken
// too, and the first error in the file is always found. Thread-safe, except result().
class Parts {
 public:
  Parts(const ReadFile& file, std::uint64_t offset, std::span<std::byte> out, std::size_t part_bytes)
      : file_(file), offset_(offset), out_(out), part_bytes_(part_bytes) {}

  std::size_t count() const { return divide_up(out_.size(), part_bytes_); }

  // Reads parts until none is left, or one failed.
  void read_remaining() {
    while (!has_failed_.load(std::memory_order_relaxed)) {
      const std::size_t part = next_.fetch_add(1, std::memory_order_relaxed);
      if (part >= count()) return;
      const std::size_t first = part * part_bytes_;
      Status done = file_.read_exactly(offset_ + first,
                                       out_.subspan(first, std::min(part_bytes_, out_.size() - first)));
      if (!done) fail(part, std::move(done).error());
    }
  }

  Status result() && {
    const Lock lock(mutex_);
    if (error_) return *std::move(error_);
    return {};
  }

 private:
  void fail(std::size_t part, Error error) {
    const Lock lock(mutex_);
    has_failed_.store(true, std::memory_order_relaxed);
    if (error_ && failed_part_ < part) return;
    failed_part_ = part;
    error_ = std::move(error);
  }

  const ReadFile& file_;
  const std::uint64_t offset_;
  const std::span<std::byte> out_;
  const std::size_t part_bytes_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> has_failed_ = false;
  Mutex mutex_;
  std::size_t failed_part_ MF_GUARDED_BY(mutex_) = 0;
  std::optional<Error> error_ MF_GUARDED_BY(mutex_);
};

}  // namespace

Status read_in_parallel(const ReadFile& file, std::uint64_t offset, std::span<std::byte> out,
                        const ParallelReadOptions& options) {
  MF_REQUIRE(options.part_bytes != 0 && options.threads != 0, "part_bytes and threads are at least 1");
  Parts parts(file, offset, out, options.part_bytes);
  if (parts.count() == 0) return {};
  ThreadPool(static_cast<unsigned>(std::min<std::size_t>(options.threads, parts.count())))
      .run([&parts](unsigned) { parts.read_remaining(); });
  return std::move(parts).result();
}

}  // namespace moeflux
