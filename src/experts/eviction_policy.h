#pragma once
// Which record leaves when another needs its slot.
//
// The scheduler tells a policy which slots could go; slots that are leased, wanted or being read are not among them.
// The policy names the one that should. One policy a slab; slots are numbered over all slabs. Nothing allocates after
// construction. One thread at a time.

#include <cstdint>
#include <functional>
#include <memory>

#include "base/function_ref.h"
#include "experts/slot_list.h"

namespace moeflux {

enum class Standing {
  newest,  // has just been used
  oldest,  // has been used up: passed by in a sweep over all experts, or read for nothing
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // The slot could go from now on.
  virtual void add(std::uint32_t slot, Standing standing) = 0;
  // It could not any more, or has gone.
  virtual void remove(std::uint32_t slot) = 0;
  // Who should go, of those that may; kNoSlot when nobody does. A policy asks about a few of its candidates, not about
  // all: who comes far down its list will not be given away instead of the first.
  virtual std::uint32_t victim(FunctionRef<bool(std::uint32_t slot)> may_go) const = 0;
};

// The least recently used one.
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
  SlotList order_;  // the oldest first
};

// Makes the policy of one slab, for slots numbered below `slots`.
using PolicyMaker = std::function<std::unique_ptr<EvictionPolicy>(std::uint32_t slots)>;

}  // namespace moeflux
