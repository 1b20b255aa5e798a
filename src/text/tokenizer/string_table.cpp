#include "text/tokenizer/string_table.h"

#define XXH_INLINE_ALL  // words are short, so a call would cost as much as the hash
#include <xxhash.h>

#include <limits>

#include "base/check.h"

namespace moeflux {

std::uint64_t fast_hash(std::string_view bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::size_t StringTable::slot_of(std::string_view text) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = static_cast<std::size_t>(fast_hash(text, seed_)) & mask;
  while (slots_[slot] != 0 && (*this)[slots_[slot] - 1] != text) slot = (slot + 1) & mask;
  return slot;
}

void StringTable::grow() {
  slots_.assign(slots_.empty() ? 64 : slots_.size() * 2, 0);
  for (std::uint32_t number = 0; number < ends_.size(); ++number)
    slots_[slot_of((*this)[number])] = number + 1;
}

bool StringTable::add(std::string_view text) {
  MF_REQUIRE(text.size() <= std::numeric_limits<std::uint32_t>::max() - blob_.size(),
             "a table stays under 4 GiB");
  if (slots_.size() < 2 * (ends_.size() + 1)) grow();
  const std::size_t slot = slot_of(text);
  if (slots_[slot] != 0) return false;
  blob_ += text;
  ends_.push_back(static_cast<std::uint32_t>(blob_.size()));
  slots_[slot] = static_cast<std::uint32_t>(ends_.size());
  return true;
}

std::optional<std::uint32_t> StringTable::find(std::string_view text) const {
  if (slots_.empty()) return std::nullopt;
  const std::uint32_t number = slots_[slot_of(text)];
  if (number == 0) return std::nullopt;
  return number - 1;
}

}  // namespace moeflux
