#include "engine/checkpoints.h"

#include <algorithm>
#include <utility>

namespace moeflux {
namespace {

// The first checkpoint at or after `position`.
template <class Kept>
auto at_or_after(Kept& kept, std::uint32_t position) {
  return std::ranges::lower_bound(kept, position, {},
                                  [](const auto& one) { return one.snapshot.position(); });
}

}  // namespace

void Checkpoints::keep(Snapshot snapshot) {
  const std::uint32_t position = snapshot.position();
  auto found = at_or_after(kept_, position);
  if (found != kept_.end() && found->snapshot.position() == position)
    *found = {std::move(snapshot), ++uses_};
  else
    kept_.insert(found, {std::move(snapshot), ++uses_});
  evict();
}

const Snapshot* Checkpoints::use(Kept* kept) {
  kept->last_use = ++uses_;
  return &kept->snapshot;
}

const Snapshot* Checkpoints::find(std::uint32_t position) {
  const auto found = at_or_after(kept_, position);
  if (found == kept_.end() || found->snapshot.position() != position) return nullptr;
  return use(&*found);
}

const Snapshot* Checkpoints::deepest_up_to(std::uint32_t position) {
  auto found = at_or_after(kept_, position);
  if (found != kept_.end() && found->snapshot.position() == position) return use(&*found);
  if (found == kept_.begin()) return nullptr;
  return use(&*--found);
}

void Checkpoints::drop_after(std::uint32_t position) {
  std::erase_if(kept_, [&](const Kept& kept) { return kept.snapshot.position() > position; });
}

std::uint64_t Checkpoints::own_bytes() const {
  std::uint64_t bytes = 0;
  for (const Kept& kept : kept_) bytes += kept.snapshot.own_bytes();
  return bytes;
}

std::vector<std::uint32_t> Checkpoints::positions() const {
  std::vector<std::uint32_t> positions;
  for (const Kept& kept : kept_) positions.push_back(kept.snapshot.position());
  return positions;
}

std::vector<Snapshot> Checkpoints::by_last_use() const {
  std::vector<const Kept*> kept;
  for (const Kept& one : kept_) kept.push_back(&one);
  std::ranges::sort(kept, std::ranges::greater(), &Kept::last_use);
  std::vector<Snapshot> snapshots;
  for (const Kept* const one : kept) snapshots.push_back(one->snapshot);
  return snapshots;
}

// The newest checkpoint has the latest use, because keep() has just made it.
bool Checkpoints::evict_one() {
  auto victim = kept_.end();
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    if (kept->snapshot.position() == 0 || kept->last_use == uses_) continue;
    if (victim == kept_.end() || kept->last_use < victim->last_use) victim = kept;
  }
  if (victim == kept_.end()) return false;
  kept_.erase(victim);
  return true;
}

void Checkpoints::evict() {
  while ((kept_.size() > most_ || own_bytes() > budget_bytes_) && evict_one()) {
  }
}

}  // namespace moeflux
