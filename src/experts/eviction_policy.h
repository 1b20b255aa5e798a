#pragma once
// Chooses which record to evict when another needs its slot.
//
// The scheduler adds the slots that may be evicted and removes those that are leased, wanted or loading. The
// policy picks one of them. One policy per slab; slots are numbered over all slabs. Nothing allocates after
// construction. One thread at a time.

#include <cstdint>
#include <functional>
#include <memory>

#include "base/function_ref.h"
#include "experts/slot_list.h"

namespace moeflux {

enum class Standing {
  newest,  // just used
  oldest,  // not needed soon: read by a sweep over all experts, or a wrong guess
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // The slot may be evicted from now on.
  virtual void add(std::uint32_t slot, Standing standing) = 0;
  // The slot may no longer be evicted, or has been.
  virtual void remove(std::uint32_t slot) = 0;
  // Returns the slot to evict among those that `may_go` accepts, or kNoSlot. A policy offers only its first
  // few candidates, so that a much more valuable slot is never evicted instead.
  virtual std::uint32_t victim(FunctionRef<bool(std::uint32_t slot)> may_go) const = 0;
};

// Evicts the least recently used record.
class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(std::uint32_t slots) : links_(slots) {}

  void add(std::uint32_t slot, Standing standing) override {
    if (standing == Standing::newest)
      order_.push_back(links_, slot);
    else
      order_.push_front(links_, slot);
  }
  void remove(std::uint32_t slot) override { order_.remove(links_, slot); }
  std::uint32_t victim(FunctionRef<bool(std::uint32_t slot)> may_go) const override {
    std::uint32_t slot = order_.first;
    for (int asked = 0; slot != kNoSlot && asked < kCandidates; ++asked, slot = links_[slot].after)
      if (may_go(slot)) return slot;
    return kNoSlot;
  }

 private:
  static constexpr int kCandidates = 32;

  SlotLinks links_;
  SlotList order_;  // oldest first
};

// Creates the policy of one slab. Slot numbers are below `slots`.
using PolicyMaker = std::function<std::unique_ptr<EvictionPolicy>(std::uint32_t slots)>;

}  // namespace moeflux
