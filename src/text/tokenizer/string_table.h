#pragma once
// A StringTable numbers texts and finds the number of a text: one blob, its offsets and a hash index.
//
// For vocabularies: 150,000 texts are three arrays. The index depends on a seed, which must depend on the
// whole file, so that no file can contain texts that all collide. Built once, then immutable and thread-safe.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

// A 64-bit hash of every byte and the seed.
std::uint64_t fast_hash(std::string_view bytes, std::uint64_t seed = 0);

class StringTable {
 public:
  explicit StringTable(std::uint64_t seed) : seed_(seed) {}

  // Adds a text as number size(). Returns false if it is present already. Requires: all texts together are
  // shorter than 4 GiB.
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
