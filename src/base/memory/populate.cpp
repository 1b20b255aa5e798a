#include "base/memory/populate.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "base/arithmetic.h"
#include "base/sizes.h"
#include "base/thread_pool.h"

namespace moeflux {
namespace {

constexpr std::size_t kPartBytes = 64 * kMiB;
constexpr unsigned kMaxThreads = 16;

// Errors are ignored. Tried and dropped: touching a byte of each page if madvise() fails with EINVAL, because
// it also fails for memory that is not writable.
void populate_part([[maybe_unused]] std::span<std::byte> pages) {
#ifdef MADV_POPULATE_WRITE
  (void)::madvise(pages.data(), pages.size(), MADV_POPULATE_WRITE);
#endif
}

}  // namespace

void populate(std::span<std::byte> memory, unsigned threads) {
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t into_page = reinterpret_cast<std::uintptr_t>(memory.data()) % page_bytes;
  const std::size_t before = into_page == 0 ? 0 : page_bytes - into_page;
  if (memory.size() < before + page_bytes) return;
  const std::span<std::byte> pages =
      memory.subspan(before, (memory.size() - before) / page_bytes * page_bytes);

  const std::size_t parts = divide_up(pages.size(), kPartBytes);
  if (threads == 0) threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
  std::atomic<std::size_t> next = 0;
  ThreadPool(static_cast<unsigned>(std::min<std::size_t>(threads, parts))).run([&](unsigned) {
    for (std::size_t part = next++; part < parts; part = next++) {
      const std::size_t begin = part * kPartBytes;
      populate_part(pages.subspan(begin, std::min(kPartBytes, pages.size() - begin)));
    }
  });
}

}  // namespace moeflux
