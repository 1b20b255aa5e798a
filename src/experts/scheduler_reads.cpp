// What the scheduler reads next (wanted records, then guesses, then the rest of the model), and how reads
// end.

#include <algorithm>

#include "base/check.h"
#include "experts/scheduler.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kSweepRecords = 4;

}  // namespace

std::optional<PieceRead> ExpertScheduler::next_read() {
  const bool all_have_slots = assign_wanted();
  if (!demand_.is_empty()) {
    if (bytes_in_flight_ >= fetch_.most_bytes_in_flight) return std::nullopt;
    return submit_piece(demand_.first);
  }
  if (!all_have_slots || bytes_in_flight_ >= guess_window()) return std::nullopt;
  if (guesses_.is_empty() && !plan_guess() && !plan_fill()) return std::nullopt;
  return submit_piece(guesses_.first);
}

PieceRead ExpertScheduler::submit_piece(std::uint32_t slot) {
  LoadingSlot& s = loading(slot);
  const std::uint64_t tag = (std::uint64_t{slot} << 32) | s.submitted;
  const PieceRead read = piece_of(tag);
  if (++s.submitted == slab_of(slot).pieces.size()) dequeue(slot);
  bytes_in_flight_ += read.bytes;
  ++statistics_.reads;
  const Origin origin = s.occupant.origin;
  (origin == Origin::fill ? statistics_.filled_bytes
   : is_guess(origin)     ? statistics_.speculated_bytes
                          : statistics_.demanded_bytes) += read.bytes;
  return read;
}

// ---- Wanted records ----

// Finds slots for the missing records of the open fetch. Returns false if there is no slot for one of them
// now.
bool ExpertScheduler::assign_wanted() {
  if (!fetch_.is_open || fetch_.has_failed) return true;
  const bool is_sweep = fetch_.order == FetchOrder::ascending;
  for (; next_missing_ < missing_.size(); ++next_missing_) {
    const std::uint32_t record = record_index(fetch_.layer, missing_[next_missing_]);
    if (const std::uint32_t slot = slot_of_[record];
        slot != kNoSlot) {  // read meanwhile, as a guess or a fill
      if (is_guess(occupant(slot).origin)) accounting_.forget();
      claim(slot, Want::miss);
      continue;
    }
    const std::uint32_t slab = table_.slab_of[record];
    const std::uint64_t bytes = slabs_[slab].shape.record_bytes;
    // A sweep takes only enough slots to keep the drive busy. The other slots keep their records.
    if (is_sweep && fetch_.read_ahead_bytes + bytes > sweep_window_bytes(slabs_[slab])) return true;
    std::uint32_t slot = obtain(slab, Purpose::demand);
    if (slot == kNoSlot && cancel_queued_guesses(slab)) slot = obtain(slab, Purpose::demand);
    if (slot == kNoSlot && is_sweep) slot = steal_for_sweep(slab);
    if (slot == kNoSlot) return false;
    if (is_sweep) fetch_.read_ahead_bytes += bytes;
    const bool goes_first = is_sweep && options_.keeps_in_sweeps;
    begin_loading(slot, record, goes_first ? Origin::sweep : Origin::demand,
                  is_sweep ? Want::read_ahead : Want::miss);
  }
  return true;
}

// Cancels guesses that wait for the drive to become idle. Returns whether a slot is free now.
bool ExpertScheduler::cancel_queued_guesses(std::uint32_t slab) {
  for (std::uint32_t slot = guesses_.first; slot != kNoSlot;) {
    const std::uint32_t next = links_[slot].after;
    if (slots_[slot].slab == slab) cancel_loading(slot);
    slot = next;
  }
  return !slabs_[slab].free.is_empty();
}

// The next record of a sweep has no slot because all slots hold records that come later in the sweep. Evicts
// the last of those, which has to be read again. This is done only for the very next record, so it happens
// only with very few slots. It does not wait for a slot that is loading an unwanted record: that read may
// never end.
std::uint32_t ExpertScheduler::steal_for_sweep(std::uint32_t slab) {
  if (missing_[next_missing_] != fetch_.wanted[fetch_.served]) return kNoSlot;
  for (std::size_t i = fetch_.wanted.size(); i-- > fetch_.served + 1;) {
    const std::uint32_t expert = fetch_.wanted[i];
    const std::uint32_t slot = slot_holding(fetch_.layer, expert);
    if (slot == kNoSlot || slots_[slot].slab != slab) continue;
    const ReadySlot* const s = slots_[slot].ready();
    if (s == nullptr || s->holder != Holder::fetch || s->leases != 0) continue;
    --(s->occupant.want == Want::late ? statistics_.late : statistics_.hits);
    ++statistics_.misses;
    evict(slot);
    missing_.insert(std::ranges::lower_bound(missing_.begin() + static_cast<std::ptrdiff_t>(next_missing_),
                                             missing_.end(), expert),
                    expert);
    return slot;
  }
  return kNoSlot;
}

// ---- Guesses ----

void ExpertScheduler::hint(LayerId layer, std::span<const std::uint32_t> experts, float confidence) {
  if (!options_.speculates) return;
  drop_hints(layer);
  hints_.set(layer, experts, confidence);
  for (const std::uint32_t expert : hints_.of(layer)) {
    const std::uint32_t slot = slot_holding(layer, expert);
    if (slot == kNoSlot) continue;
    Occupant& o = occupant(slot);
    o.is_hinted = true;
    const ReadySlot* const ready = slots_[slot].ready();
    if (ready == nullptr) {
      if (loading(slot).fate == Fate::cancelled) resume_loading(slot, Queue::guesses);
    } else if (ready->holder == Holder::policy && is_guess(o.origin)) {
      take_from_holder(slot);
      set_aside(slot);
    }
  }
}

void ExpertScheduler::forget_hints() {
  for (std::uint32_t layer = 0; layer < table_.layers(); ++layer) drop_hints(LayerId(layer));
}

// The layer runs now, or new hints replace its old ones. A guess that the layer does not want was wrong.
void ExpertScheduler::drop_hints(LayerId layer) {
  for (const std::uint32_t expert : hints_.of(layer)) {
    const std::uint32_t slot = slot_holding(layer, expert);
    if (slot == kNoSlot) continue;
    Occupant& o = occupant(slot);
    if (!std::exchange(o.is_hinted, false) || o.is_wanted()) continue;
    if (o.origin == Origin::guess) {
      accounting_.refute();
      o.origin = Origin::refuted_guess;
    }
    if (const ReadySlot* const ready = slots_[slot].ready()) {
      if (ready->holder != Holder::hint) continue;
      take_from_holder(slot);
      set_aside(slot);
    } else if (is_guess(o.origin) && !loading(slot).has_failed()) {
      cancel_loading(slot);
    }
  }
  hints_.clear(layer);
}

// Begins to load the next hinted record that is in no slot. Returns false if there is none or it must wait.
bool ExpertScheduler::plan_guess() {
  if (!options_.speculates) return false;
  for (auto hint = hints_.current(); hint; hints_.advance(), hint = hints_.current()) {
    const std::uint32_t record = record_index(hint->layer, hint->expert);
    if (slot_of_[record] != kNoSlot) continue;
    const std::uint32_t slab = table_.slab_of[record];
    if (!has_room_for_guess(slabs_[slab])) return false;
    if (!accounting_.allows_read(hint->confidence, fetches_)) return false;
    const std::uint32_t slot = obtain(slab, Purpose::guess);
    if (slot == kNoSlot) return false;
    begin_loading(slot, record, Origin::guess);
    occupant(slot).is_hinted = true;
    accounting_.begin();
    hints_.advance();
    return true;
  }
  return false;
}

// Guesses get at most half of the slots, and leave what a sweep needs: a guess that the sweep evicted would
// be read twice.
bool ExpertScheduler::has_room_for_guess(const Slab& slab) const {
  const std::uint64_t taken = std::uint64_t{slab.hinted_count} + slab.loading + 1;
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

// Hints that are as good as certain get the window of a sweep.
std::uint64_t ExpertScheduler::guess_window() const {
  return accounting_.is_certain(hints_.confidence())
             ? std::max(options_.sweep_window_bytes, guess_window_bytes_)
             : guess_window_bytes_;
}

// ---- The rest of the model ----

// Begins to load the next record that is in no slot. Only where every record has a slot.
bool ExpertScheduler::plan_fill() {
  if (!options_.fills) return false;
  for (; next_fill_ < slot_of_.size(); ++next_fill_) {
    if (slot_of_[next_fill_] != kNoSlot) continue;
    const Slab& slab = slabs_[table_.slab_of[next_fill_]];
    if (slab.free.is_empty()) return false;
    begin_loading(slab.free.first, next_fill_++, Origin::fill);
    return true;
  }
  return false;
}

// ---- How reads end ----

bool ExpertScheduler::completes_record(std::uint64_t tag) const {
  const LoadingSlot* const s = slots_[slot_of(tag)].loading();
  return s != nullptr && s->fate == Fate::proceeds && s->ended + 1u == slab_of(slot_of(tag)).pieces.size();
}

bool ExpertScheduler::is_wanted(std::uint64_t tag) const {
  const LoadingSlot* const s = slots_[slot_of(tag)].loading();
  return s != nullptr && s->occupant.is_wanted() && s->fate != Fate::restarts;
}

ExpertKey ExpertScheduler::record_of(std::uint64_t tag) const {
  return key_of(occupant(slot_of(tag)).record);
}

PieceRead ExpertScheduler::piece_of(std::uint64_t tag) const {
  const std::uint32_t slot = slot_of(tag);
  const Occupant& o = occupant(slot);
  const Piece piece = slab_of(slot).pieces[tag & 0xFFFF];
  return {tag, slot, key_of(o.record), piece.offset, piece.bytes, is_speculative(o.origin)};
}

void ExpertScheduler::complete(std::uint64_t tag, bool succeeded) {
  const std::uint32_t slot = slot_of(tag);
  LoadingSlot& s = loading(slot);
  MF_REQUIRE(s.ended < s.submitted, "a read in flight ends once");
  const Slab& slab = slab_of(slot);
  bytes_in_flight_ -= slab.pieces[tag & 0xFFFF].bytes;
  ++s.ended;
  if (!succeeded && !s.has_failed()) {
    s.fate = Fate::failed;
    dequeue(slot);
    if (s.occupant.is_wanted()) fetch_.has_failed = true;
  }
  if (s.ended < s.submitted) return;
  if (s.fate != Fate::proceeds || s.submitted == slab.pieces.size()) finish_loading(slot);
}

bool ExpertScheduler::is_shown(std::uint32_t record) const {
  const ExpertKey key = key_of(record);
  const ExpertResidency shown = residency_.of(key.layer, key.expert);
  const std::uint32_t slot = slot_of_[record];
  if (slot == kNoSlot) return shown.state == Residency::absent && !shown.is_speculative;
  if (shown.is_speculative != is_speculative(occupant(slot).origin)) return false;
  const ReadySlot* const s = slots_[slot].ready();
  if (s == nullptr) return shown.state == Residency::loading;
  return shown.state == Residency::ready && (s->last_used == 0 || s->last_used == shown.last_use);
}

std::string_view ExpertScheduler::find_inconsistency() const {
  std::uint64_t in_flight = 0;
  std::uint32_t guesses = 0, occupied = 0;
  std::vector<std::uint32_t> loading_count(slabs_.size()), hinted_count(slabs_.size());
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    const Occupant* const o = slots_[i].occupant();
    if (o == nullptr) continue;
    ++occupied;
    if (slot_of_[o->record] != i) return "the slot of a record holds that record";
    if (o->is_wanted() && !fetch_.is_open) return "only an open fetch wants records";
    guesses += is_guess(o->origin);
    if (const LoadingSlot* const s = slots_[i].loading()) {
      if (s->submitted < s->ended) return "no more reads end than were submitted";
      if (s->submitted == s->ended && s->queue == Queue::none) return "a loading slot is queued or in flight";
      in_flight += s->submitted - s->ended;
      ++loading_count[slots_[i].slab];
    } else if (const ReadySlot* const r = slots_[i].ready()) {
      if (o->is_wanted() != (r->holder == Holder::fetch)) return "the open fetch holds what it wants";
      const bool is_held_back = r->holder == Holder::hint || r->holder == Holder::policy;
      if ((r->leases != 0) && is_held_back) return "a leased slot cannot be evicted";
      if (r->leases == 0 && r->holder == Holder::leases) return "an unleased slot has a holder";
      hinted_count[slots_[i].slab] += r->holder == Holder::hint;
    }
  }
  for (std::uint32_t record = 0; record < slot_of_.size(); ++record)
    if (!is_shown(record)) return "the residency map shows the slots";
  const auto records = slot_of_.size() - static_cast<std::size_t>(std::ranges::count(slot_of_, kNoSlot));
  if (records != occupied) return "a record has a slot if and only if a slot has the record";
  for (std::size_t i = 0; i < slabs_.size(); ++i) {
    if (loading_count[i] != slabs_[i].loading) return "loading slots are counted";
    if (hinted_count[i] != slabs_[i].hinted_count) return "slots kept for hints are counted";
  }
  if (guesses != accounting_.unused()) return "unused guesses are counted";
  if ((in_flight == 0) != (bytes_in_flight_ == 0)) return "bytes in flight are counted";
  return {};
}

}  // namespace moeflux
