#pragma once
// A value that one thread writes and any thread reads, without a lock.
//
// A reader gets all of one publication, never parts of two. Readers do not delay the writer. A writer that
// stops in the middle of a publication does not delay readers: it writes one of two copies while they read
// the other. A reader starts again only if a publication has ended while it read. Neither allocates.
//
// One thread at a time publishes; any thread reads at any time.

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace moeflux {

template <class T>
class Published {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0,
                "a value is copied in words of 64 bits");

 public:
  explicit Published(const T& value = {}) { publish(value); }

  void publish(const T& value) {
    const std::uint64_t number = number_.load(std::memory_order_relaxed) + 1;
    const Words words = std::bit_cast<Words>(value);
    Copy& copy = copies_[number % 2];
    for (std::size_t i = 0; i < words.size(); ++i) copy[i].store(words[i], std::memory_order_release);
    number_.store(number, std::memory_order_release);
  }

  // A reader that sees a word of publication n + 2 in the copy of publication n also sees that the number is
  // no longer n: the writer stored n + 1 before that word, and both sides order their accesses to the words.
  T read() const {
    while (true) {
      const std::uint64_t number = number_.load(std::memory_order_acquire);
      const Copy& copy = copies_[number % 2];
      Words words;
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = copy[i].load(std::memory_order_acquire);
      if (number_.load(std::memory_order_relaxed) == number) return std::bit_cast<T>(words);
    }
  }

 private:
  using Words = std::array<std::uint64_t, sizeof(T) / sizeof(std::uint64_t)>;
  using Copy = std::array<std::atomic<std::uint64_t>, sizeof(T) / sizeof(std::uint64_t)>;

  std::array<Copy, 2> copies_ = {};
  std::atomic<std::uint64_t> number_ = 0;  // of the last publication, in copies_[number % 2]
};

}  // namespace moeflux
