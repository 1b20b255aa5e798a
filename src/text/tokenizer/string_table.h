#pragma once
// Texts with numbers, and the number of a text: one blob, its offsets, and an index.
//
// For vocabularies: 150,000 texts are three arrays. The index depends on a seed, so that a file cannot be made
// of texts that all fall into one place: the seed is to depend on all of the file. Built once, then immutable:
// any thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

// 64 bits that depend on every byte and on the seed.
std::uint64_t fast_hash(std::string_view bytes, std::uint64_t seed = 0);

class StringTable {
 public:
  explicit StringTable(std::uint64_t seed) : seed_(seed) {}

  // Adds a text as number size(), unless it is there already: then false. Together they stay under 4 GiB.
  bool add(std::string_view text);

  std::size_t size() const { return ends_.size(); }
  std::string_view operator[](std::uint32_t number) const {
    const std::uint32_t begin = number == 0 ? 0 : ends_[number - 1];
    return std::string_view(blob_).substr(begin, ends_[number] - begin);
  }
  std::optional<std::uint32_t> find(std::string_view text) const;

 private:
  std::size_t slot_of(std::string_view text) const;
  void grow();

  std::uint64_t seed_;
  std::string blob_;
  std::vector<std::uint32_t> ends_;
  std::vector<std::uint32_t> slots_;  // number + 1, or 0; a power of two, at most half full
};

}  // namespace moeflux
