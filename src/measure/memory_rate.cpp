#include "measure/memory_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/memory/aligned_buffer.h"
#include "kernels/kernel_table.h"
#include "measure/quantiles.h"

namespace moeflux {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr std::size_t kLineWords = kLineBytes / kWordBytes;
constexpr unsigned kMaxRepeats = 10'000;

// Two words, added by one instruction on every x86-64 and ARMv8. gcc and clang have the attribute.
using WordPair = std::uint64_t __attribute__((vector_size(16)));

WordPair load_pair(const std::byte* from) {
  WordPair pair;
  std::memcpy(&pair, from, sizeof(pair));
  return pair;
}

// One cache line per iteration, into four independent sums: few instructions, so the processor keeps dozens
// of lines in flight and memory is the bottleneck. Tried and dropped: 64-byte loads of AVX-512 (29 GB/s
// instead of 34, one thread of a Zen 4 EPYC over 1 GiB, medians of 9). `Asks`: prefetches, as the kernels do
// on processors that need it.
template <bool Asks>
std::uint64_t sum_of_lines(const std::byte* lines, std::uint64_t count) {
  WordPair a{}, b{}, c{}, d{};
  for (const std::byte* const end = lines + count * kLineBytes; lines != end; lines += kLineBytes) {
    a += load_pair(lines);
    b += load_pair(lines + 16);
    c += load_pair(lines + 32);
    d += load_pair(lines + 48);
    if constexpr (Asks) __builtin_prefetch(lines + kPrefetchDistanceBytes, 0, 2);
  }
  const WordPair sum = (a + b) + (c + d);
  return sum[0] + sum[1];
}

std::uint64_t sum_of_rest(std::span<const std::byte> bytes) {
  std::uint64_t total = 0;
  while (!bytes.empty()) {
    const std::size_t size = std::min(bytes.size(), kWordBytes);
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), size);
    total += word;
    bytes = bytes.subspan(size);
  }
  return total;
}

// Fills the buffer, each part by the thread that will read it: a page is placed on the node of its first
// writer. A partial last line stays zero, as HugeBuffer allocated it.
void fill(ThreadPool& pool, std::span<std::byte> bytes) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15;  // odd: all words differ
  pool.parallel_for(bytes.size() / kLineBytes, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    for (std::uint64_t word = begin * kLineWords; word < end * kLineWords; ++word) {
      const std::uint64_t value = word * kStep;
      std::memcpy(bytes.data() + word * kWordBytes, &value, kWordBytes);
    }
  });
}

Status check_arguments(std::uint64_t bytes, unsigned repeats) {
  if (bytes != 0 && repeats != 0 && repeats <= kMaxRepeats) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("measuring memory: expected at least 1 byte and 1 to {} passes, found {} and {}",
                           kMaxRepeats, bytes, repeats)};
}

}  // namespace

std::uint64_t sum_of_words(ThreadPool& pool, std::span<const std::byte> bytes) {
  MF_REQUIRE(reinterpret_cast<std::uintptr_t>(bytes.data()) % kLineBytes == 0, "bytes begin with a line");
  const std::uint64_t lines = bytes.size() / kLineBytes;
  std::atomic<std::uint64_t> total = sum_of_rest(bytes.subspan(lines * kLineBytes));
  const auto sum = wants_prefetch() ? sum_of_lines<true> : sum_of_lines<false>;
  pool.parallel_for(lines, [&](std::uint64_t begin, std::uint64_t end, unsigned) {
    total += sum(bytes.data() + begin * kLineBytes, end - begin);
  });
  return total;
}

Result<double> measure_read_bytes_per_second(ThreadPool& pool, std::span<const std::byte> bytes,
                                             unsigned repeats) {
  MF_TRY_STATUS(check_arguments(bytes.size(), repeats));
  using Clock = std::chrono::steady_clock;
  std::optional<std::uint64_t> expected;
  std::vector<double> rates;
  for (unsigned pass = 0; pass < repeats; ++pass) {
    const Clock::time_point begin = Clock::now();
    const std::uint64_t sum = sum_of_words(pool, bytes);
    const auto taken = std::max<Clock::duration>(Clock::now() - begin, std::chrono::nanoseconds(1));
    // The comparison also keeps the compiler from removing the reads.
    if (expected.value_or(sum) != sum)
      return Error{ErrorCode::corrupt_data,
                   fmt::format("measuring memory: pass {} over {} bytes read other bytes than the first",
                               pass, bytes.size())};
    expected = sum;
    rates.push_back(static_cast<double>(bytes.size()) / std::chrono::duration<double>(taken).count());
  }
  return median(rates);
}

Result<double> measure_read_bytes_per_second(ThreadPool& pool, std::uint64_t bytes, unsigned repeats) {
  MF_TRY_STATUS(check_arguments(bytes, repeats));
  MF_TRY(HugeBuffer buffer, HugeBuffer::create(bytes));
  fill(pool, buffer.bytes());
  return measure_read_bytes_per_second(pool, buffer.bytes(), repeats);
}

}  // namespace moeflux
