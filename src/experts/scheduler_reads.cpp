// What the scheduler reads next: what is wanted, then what is guessed, then what there is room for.

#include <algorithm>

#include "base/check.h"
#include "experts/scheduler.h"

namespace moeflux {
namespace {

// Guesses are read as long as so many of them were right lately. Below, one in so many fetches is read all the same,
// since guesses may get better, and ever fewer as long as they do not. A drive that idles costs nothing, so the bar is
// low.
constexpr float kLeastPrecision = 0.35F;
constexpr float kLeastConfidence = 0.1F;
constexpr float kCertain = 0.95F, kCertainPrecision = 0.9F;
constexpr std::uint32_t kFetchesAProbe = 256, kMostFetchesAProbe = 1 << 16;
constexpr float kPrecisionMemory = 1.0F / 32;

constexpr std::uint64_t kSweepRecords = 4;

}  // namespace

std::optional<PieceRead> ExpertScheduler::next_read() {
  const bool all_have_slots = assign_wanted();
  if (!demand_.is_empty()) {
    if (bytes_out_ >= fetch_.most_bytes_out) return std::nullopt;
    return emit(demand_.first);
  }
  if (!all_have_slots || bytes_out_ >= guess_window()) return std::nullopt;
  if (guesses_.is_empty() && !plan_guess() && !plan_fill()) return std::nullopt;
  return emit(guesses_.first);
}

PieceRead ExpertScheduler::emit(std::uint32_t slot) {
  Slot& s = slots_[slot];
  const Slab& slab = slab_of(s);
  const std::uint64_t tag = (std::uint64_t{slot} << 32) | s.submitted;
  const PieceRead read = piece_of(tag);
  if (++s.submitted == slab.pieces.size()) detach(slot);
  bytes_out_ += read.bytes;
  ++statistics_.reads;
  (s.is_fill    ? statistics_.filled_bytes
   : s.is_guess ? statistics_.speculated_bytes
                : statistics_.demanded_bytes) += read.bytes;
  return read;
}

// ---- What is wanted ----

bool ExpertScheduler::assign_wanted() {
  if (!fetch_.is_open || fetch_.has_failed) return true;
  const bool is_sweep = fetch_.order == FetchOrder::ascending;
  for (; next_missing_ < missing_.size(); ++next_missing_) {
    const std::uint32_t record = record_index(fetch_.layer, missing_[next_missing_]);
    if (slot_of_[record] != kNoSlot) {  // read meanwhile, for a guess or because there was room
      claim(slot_of_[record]);
      continue;
    }
    const std::uint32_t slab = table_.slab_of[record];
    const std::uint64_t bytes = slabs_[slab].shape.record_bytes;
    // A sweep takes no more slots than keep the drive busy: the others keep what they have.
    if (is_sweep && fetch_.read_ahead_bytes + bytes > sweep_window_bytes(slabs_[slab])) return true;
    std::uint32_t slot = obtain(slab, Purpose::demand);
    if (slot == kNoSlot && give_up_guesses(slab)) slot = obtain(slab, Purpose::demand);
    if (slot == kNoSlot && is_sweep) slot = steal_for_sweep(slab);
    if (slot == kNoSlot) return false;
    begin_loading(slot, record, Purpose::demand);
    Slot& s = slots_[slot];
    s.is_wanted = true;
    if (!is_sweep) continue;
    s.is_read_ahead = true;
    s.is_swept = options_.keeps_in_sweeps;
    fetch_.read_ahead_bytes += bytes;
  }
  return true;
}

// Guesses that have begun and wait for the drive to idle give way; says whether a slot is free now.
bool ExpertScheduler::give_up_guesses(std::uint32_t slab) {
  for (std::uint32_t slot = guesses_.first; slot != kNoSlot;) {
    const std::uint32_t next = links_[slot].after;
    if (slots_[slot].slab == slab) cancel_loading(slot);
    slot = next;
  }
  return !slabs_[slab].free.is_empty();
}

// The next of a sweep has no slot, because all are full of what comes later in it: the last of those has to be read
// again. Only for the very next, so only where the slots are very few. What is still being read for nobody is not
// waited for: it may never end.
std::uint32_t ExpertScheduler::steal_for_sweep(std::uint32_t slab) {
  if (missing_[next_missing_] != fetch_.wanted[fetch_.handed_out]) return kNoSlot;
  for (std::size_t i = fetch_.wanted.size(); i-- > fetch_.handed_out + 1;) {
    const std::uint32_t expert = fetch_.wanted[i];
    const std::uint32_t slot = slot_of_[record_index(fetch_.layer, expert)];
    if (slot == kNoSlot || slots_[slot].slab != slab || slots_[slot].place != Place::ready) continue;
    if (slots_[slot].leases != 0) continue;
    --(slots_[slot].was_late ? statistics_.late : statistics_.hits);
    ++statistics_.misses;
    slots_[slot].is_wanted = false;
    evict(slot);
    detach(slot);
    missing_.insert(std::ranges::lower_bound(missing_.begin() + static_cast<std::ptrdiff_t>(next_missing_),
                                             missing_.end(), expert),
                    expert);
    return slot;
  }
  return kNoSlot;
}

// ---- What is guessed ----

void ExpertScheduler::hint(LayerId layer, std::span<const std::uint32_t> experts, float confidence) {
  if (!options_.speculates) return;
  drop_hints(layer.index());
  Hints& hints = hints_[layer.index()];
  hints.next = 0;
  hints.confidence = confidence;
  hint_distance_ = 0;
  for (const std::uint32_t expert : experts) {
    if (hints.experts.size() == hints.experts.capacity()) break;
    hints.experts.push_back(expert);
    const std::uint32_t slot = slot_of_[record_index(layer, expert)];
    if (slot == kNoSlot) continue;
    Slot& s = slots_[slot];
    s.is_hinted = true;
    if (s.place == Place::policy && s.is_guess) {
      detach(slot);
      set_aside(slot);
    } else if (s.is_cancelled && !s.has_failed) {
      resume_loading(slot, Place::guesses);
    }
  }
}

void ExpertScheduler::forget_hints() {
  for (std::uint32_t layer = 0; layer < hints_.size(); ++layer) drop_hints(layer);
}

// The layer's turn has come, or there are other guesses for it: what was not wanted is of no more use than others.
void ExpertScheduler::drop_hints(std::uint32_t layer) {
  for (const std::uint32_t expert : hints_[layer].experts) {
    const std::uint32_t slot = slot_of_[record_index(LayerId(layer), expert)];
    if (slot == kNoSlot || !slots_[slot].is_hinted) continue;
    Slot& s = slots_[slot];
    s.is_hinted = false;
    if (s.is_wanted) continue;
    if (s.is_guess) judge(s, false);
    if (s.place == Place::kept) {
      detach(slot);
      set_aside(slot);
    } else if (s.state == State::loading && s.is_guess && !s.has_failed) {
      cancel_loading(slot);
    }
  }
  hints_[layer].experts.clear();
}

bool ExpertScheduler::plan_guess() {
  if (!options_.speculates) return false;
  for (; hint_distance_ < table_.layers(); ++hint_distance_) {
    const std::uint32_t layer = (layer_now_ + 1 + hint_distance_) % table_.layers();
    Hints& hints = hints_[layer];
    for (; hints.next < hints.experts.size(); ++hints.next) {
      const std::uint32_t record = record_index(LayerId(layer), hints.experts[hints.next]);
      if (slot_of_[record] != kNoSlot) continue;
      const std::uint32_t slab = table_.slab_of[record];
      if (!has_room_for_guess(slabs_[slab])) return false;
      if (!is_worth_reading(hints.confidence)) return false;
      const std::uint32_t slot = obtain(slab, Purpose::guess);
      if (slot == kNoSlot) return false;
      begin_loading(slot, record, Purpose::guess);
      slots_[slot].is_guess = slots_[slot].is_hinted = true;
      ++unused_guesses_;
      ++hints.next;
      return true;
    }
  }
  return false;
}

// Half of the slots at most, and what a sweep needs for itself stays: a guess that it pushed out would be read twice.
bool ExpertScheduler::has_room_for_guess(const Slab& slab) const {
  const std::uint64_t taken = std::uint64_t{slab.kept_count} + slab.loading + 1;
  if (2 * taken > slab.shape.slots) return false;
  if (fetch_.order == FetchOrder::ready_first) return true;
  const std::uint64_t window = sweep_window_bytes(slab) / slab.shape.record_bytes;
  return taken + window + lease_limit_ <= slab.shape.slots;
}

std::uint64_t ExpertScheduler::sweep_window_bytes(const Slab& slab) const {
  const std::uint64_t record = slab.shape.record_bytes;
  return std::max(kSweepRecords * record,
                  std::min(options_.sweep_window_bytes, slab.shape.slots / 4 * record));
}

// What is as good as certain may be read ahead like what is wanted.
std::uint64_t ExpertScheduler::guess_window() const {
  const float confidence = hints_[(layer_now_ + 1 + hint_distance_) % table_.layers()].confidence;
  const bool is_certain = confidence >= kCertain && precision_ >= kCertainPrecision;
  return is_certain ? std::max(options_.sweep_window_bytes, guess_window_bytes_) : guess_window_bytes_;
}

bool ExpertScheduler::is_worth_reading(float confidence) {
  if (confidence < kLeastConfidence) return false;
  if (precision_ >= kLeastPrecision) {
    next_probe_ = fetches_ + kFetchesAProbe;
    return true;
  }
  if (fetches_ < next_probe_) return false;
  probe_interval_ = std::clamp(2 * probe_interval_, kFetchesAProbe, kMostFetchesAProbe);
  next_probe_ = fetches_ + probe_interval_;
  return true;
}

void ExpertScheduler::judge(Slot& slot, bool was_right) {
  if (slot.is_judged) return;
  slot.is_judged = true;
  precision_ += ((was_right ? 1.0F : 0.0F) - precision_) * kPrecisionMemory;
  if (was_right)
    probe_interval_ = 0;
  else
    ++statistics_.wrong_guesses;
}

// ---- What there is room for ----

bool ExpertScheduler::plan_fill() {
  if (!options_.fills) return false;
  for (; next_fill_ < slot_of_.size(); ++next_fill_) {
    if (slot_of_[next_fill_] != kNoSlot) continue;
    Slab& slab = slabs_[table_.slab_of[next_fill_]];
    if (slab.free.is_empty()) return false;
    const std::uint32_t slot = slab.free.first;
    detach(slot);
    begin_loading(slot, next_fill_++, Purpose::guess);
    slots_[slot].is_fill = true;
    return true;
  }
  return false;
}

}  // namespace moeflux
