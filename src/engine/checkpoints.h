#pragma once
// The positions that a session can go back to.
//
// A few snapshots by position, bounded by a count and by bytes. Beyond either bound the least recently used
// one is evicted; making a checkpoint and going back to it count as use. Position 0 and the newest checkpoint
// are never evicted. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "state/snapshot.h"

namespace moeflux {

class Checkpoints {
 public:
  static constexpr std::size_t kDefaultMost = 4;
  static constexpr std::uint64_t kNoBudget = ~std::uint64_t{0};

  // Keeps `snapshot` under its position, replacing the one that was there, and evicts.
  void keep(Snapshot snapshot);

  // Null when there is none. Counts as use.
  const Snapshot* find(std::uint32_t position);
  const Snapshot* deepest_up_to(std::uint32_t position);

  void drop_after(std::uint32_t position);
  // Drops the least recently used one, or returns false if only position 0 and the newest are left.
  bool evict_one();
  void clear() { kept_.clear(); }

  // New limits take effect at the next keep().
  void set_most(std::size_t count) { most_ = count; }
  std::size_t most() const { return most_; }
  void set_budget_bytes(std::uint64_t bytes) { budget_bytes_ = bytes; }

  std::size_t count() const { return kept_.size(); }
  std::uint64_t own_bytes() const;
  std::vector<std::uint32_t> positions() const;  // ascending
  std::vector<Snapshot> by_last_use() const;     // most recently used first

 private:
  struct Kept {
    Snapshot snapshot;
    std::uint64_t last_use;
  };

  const Snapshot* use(Kept* kept);
  void evict();

  std::vector<Kept> kept_;  // ascending positions
  std::uint64_t uses_ = 0;
  std::size_t most_ = kDefaultMost;
  std::uint64_t budget_bytes_ = kNoBudget;
};

}  // namespace moeflux
