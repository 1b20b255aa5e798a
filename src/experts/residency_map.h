#pragma once
// Which experts are in memory, readable by any thread at any time.
//
// One entry per record: its state, whether it was read ahead, and its last use. The owner of the records (the
// scheduler, for a model that streams) writes an entry where a slot changes state. An entry is one atomic
// word, so a reader never waits and never gets half of an entry.
//
// Two entries are read one after the other. An expert may move between them, so a reader can find more
// experts in memory than there are slots.
//
// The arrays are allocated at construction. Reading is thread-safe; one thread at a time writes.

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace moeflux {

enum class Residency : std::uint8_t {
  absent,
  loading,  // in a slot that is being read into
  ready,
};

struct ExpertResidency {
  Residency state = Residency::absent;
  bool is_speculative = false;  // read as a guess or to fill the cache, and not wanted since
  // The number of the fetch that used the expert last, also after it was evicted; 0: none. The fetches of all
  // layers are numbered together, from 1 on: the expert with the largest number was used most recently.
  std::uint64_t last_use = 0;

  friend bool operator==(const ExpertResidency&, const ExpertResidency&) = default;
};

class ResidencyMap {
 public:
  // `first_record`: [layers + 1], the number of the first record of each layer, and of all records. Every
  // record begins in `state`.
  explicit ResidencyMap(std::span<const std::uint32_t> first_record, Residency state = Residency::absent)
      : first_record_(first_record.begin(), first_record.end()), entries_(first_record.back()) {
    for (Entry& entry : entries_) entry.store(static_cast<std::uint64_t>(state), std::memory_order_relaxed);
  }

  // ---- Any thread ----
  std::uint32_t layers() const { return static_cast<std::uint32_t>(first_record_.size()) - 1; }
  // Routed experts of the layer; 0 for a dense one.
  std::uint32_t experts(LayerId layer) const {
    MF_REQUIRE(layer.index() < layers(), "the model has the layer");
    return first_record_[layer.index() + 1] - first_record_[layer.index()];
  }
  std::uint32_t records() const { return first_record_.back(); }  // of all layers
  ExpertResidency of(LayerId layer, ExpertId expert) const {
    MF_REQUIRE(expert.index() < experts(layer), "the layer has the expert");
    const std::uint64_t entry = load(first_record_[layer.index()] + expert.index());
    return {.state = static_cast<Residency>(entry & kStateMask),
            .is_speculative = (entry & kSpeculative) != 0,
            .last_use = entry >> kUseShift};
  }

  // ---- The owner of the records ----
  void set_state(std::uint32_t record, Residency state, bool is_speculative) {
    const std::uint64_t last_use = load(record) >> kUseShift;
    entries_[record].store(
        (last_use << kUseShift) | (is_speculative ? kSpeculative : 0) | static_cast<std::uint64_t>(state),
        std::memory_order_relaxed);
  }
  // Requires: fetch < 2^61.
  void set_last_use(std::uint32_t record, std::uint64_t fetch) {
    entries_[record].store((fetch << kUseShift) | (load(record) & (kSpeculative | kStateMask)),
                           std::memory_order_relaxed);
  }

 private:
  using Entry = std::atomic<std::uint64_t>;
  static constexpr std::uint64_t kStateMask = 3, kSpeculative = 4;
  static constexpr unsigned kUseShift = 3;

  std::uint64_t load(std::uint32_t record) const { return entries_[record].load(std::memory_order_relaxed); }

  const std::vector<std::uint32_t> first_record_;  // [layers + 1]
  std::vector<Entry> entries_;                     // [records]
};

}  // namespace moeflux
