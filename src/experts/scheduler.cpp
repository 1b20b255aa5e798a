#include "experts/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kPieceAlignment = 4096;
constexpr float kTrustedPrecision = 0.5F;

std::uint64_t round_to_pages(std::uint64_t bytes) {
  return (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
}

// A part of a record, cut into pieces of about the same size.
void cut(std::uint64_t begin, std::uint64_t end, std::uint64_t piece_bytes, auto&& add) {
  const std::uint64_t bytes = end - begin;
  if (bytes == 0) return;
  const std::uint64_t count = (bytes + piece_bytes - 1) / piece_bytes;
  const std::uint64_t each = round_to_pages((bytes + count - 1) / count);
  for (std::uint64_t at = begin; at < end; at += each) add(at, std::min(each, end - at));
}

}  // namespace

ExpertScheduler::ExpertScheduler(ExpertTable table, const SchedulerOptions& options,
                                 const PolicyMaker& make_policy)
    : table_(std::move(table)), options_(options) {
  MF_REQUIRE(options.piece_bytes >= kPieceAlignment && options.piece_bytes % kPieceAlignment == 0,
             "pieces are whole pages");
  std::uint32_t slots = 0;
  for (const SlabShape& shape : table_.slabs) {
    MF_REQUIRE(shape.slots >= 1 && shape.record_bytes > 0, "a slab has room for a record");
    slots += shape.slots;
  }
  slots_.resize(slots);
  links_.resize(slots);
  lease_limit_ = ~std::uint32_t{0};
  std::uint32_t next_slot = 0;
  for (std::uint32_t i = 0; i < table_.slabs.size(); ++i) {
    Slab& slab = slabs_.emplace_back();
    slab.shape = table_.slabs[i];
    const auto add = [&](std::uint64_t at, std::uint64_t bytes) { slab.pieces.push_back({at, bytes}); };
    if (slab.shape.record_bytes <= options.piece_bytes) {
      add(0, slab.shape.record_bytes);
    } else {
      cut(0, slab.shape.down_offset, options.piece_bytes, add);
      cut(slab.shape.down_offset, slab.shape.record_bytes, options.piece_bytes, add);
    }
    MF_REQUIRE(slab.pieces.size() < (1u << 16), "a record has at most 65,535 pieces");
    slab.policy = make_policy(slots);
    for (std::uint32_t n = 0; n < slab.shape.slots; ++n, ++next_slot) {
      slots_[next_slot].slab = i;
      put(next_slot, Place::free);
    }
    // Half of the slots are computed with while the other half is read.
    lease_limit_ = std::min(lease_limit_, std::max(1u, slab.shape.slots / 2));
  }
  slot_of_.assign(table_.slab_of.size(), kNoSlot);
  layer_of_.resize(table_.slab_of.size());
  hints_.resize(table_.layers());
  last_fetch_.resize(table_.layers());
  for (std::uint32_t layer = 0; layer < table_.layers(); ++layer) {
    const std::uint32_t first = table_.first_record[layer], end = table_.first_record[layer + 1];
    std::fill(layer_of_.begin() + first, layer_of_.begin() + end, layer);
    hints_[layer].experts.reserve(end - first);
    missing_.reserve(std::max<std::size_t>(missing_.capacity(), end - first));
  }
}

ExpertKey ExpertScheduler::key_of(std::uint32_t record) const {
  const std::uint32_t layer = layer_of_[record];
  return {LayerId(layer), ExpertId(record - table_.first_record[layer])};
}

// ---- Lists ----

SlotList* ExpertScheduler::list_of(std::uint32_t slot, Place place) {
  switch (place) {
    case Place::free: return &slab_of(slots_[slot]).free;
    case Place::kept: return &slab_of(slots_[slot]).kept;
    case Place::demand: return &demand_;
    case Place::guesses: return &guesses_;
    case Place::ready: return &ready_;
    case Place::policy:
    case Place::none: break;
  }
  return nullptr;
}

void ExpertScheduler::put(std::uint32_t slot, Place place) {
  MF_REQUIRE(slots_[slot].place == Place::none, "a slot is in one list at a time");
  list_of(slot, place)->push_back(links_, slot);
  slots_[slot].place = place;
  if (place == Place::kept) ++slab_of(slots_[slot]).kept_count;
}

void ExpertScheduler::put_to_policy(std::uint32_t slot, Standing standing) {
  MF_REQUIRE(slots_[slot].place == Place::none, "a slot is in one list at a time");
  slab_of(slots_[slot]).policy->add(slot, standing);
  slots_[slot].place = Place::policy;
}

void ExpertScheduler::detach(std::uint32_t slot) {
  const Place place = slots_[slot].place;
  if (place == Place::none) return;
  if (place == Place::policy)
    slab_of(slots_[slot]).policy->remove(slot);
  else
    list_of(slot, place)->remove(links_, slot);
  if (place == Place::kept) --slab_of(slots_[slot]).kept_count;
  slots_[slot].place = Place::none;
}

void ExpertScheduler::set_aside(std::uint32_t slot) {
  const Slot& s = slots_[slot];
  const Slab& slab = slab_of(s);
  // Guesses keep at most half of the slots from those who know what they want.
  if (s.is_guess && s.is_hinted && 2 * (slab.kept_count + 1) <= slab.shape.slots)
    put(slot, Place::kept);
  else
    put_to_policy(slot, s.is_swept || s.is_judged ? Standing::oldest : Standing::newest);
}

// ---- Slots ----

std::uint32_t ExpertScheduler::obtain(std::uint32_t slab_index, Purpose purpose) {
  Slab& slab = slabs_[slab_index];
  if (!slab.free.is_empty()) {
    const std::uint32_t slot = slab.free.first;
    detach(slot);
    return slot;
  }
  const auto is_not_hinted = [&](std::uint32_t i) { return !slots_[i].is_hinted; };
  const auto can_go = [&](std::uint32_t i) { return can_go_for_guess(slots_[i]); };
  std::uint32_t slot =
      purpose == Purpose::demand ? slab.policy->victim(is_not_hinted) : slab.policy->victim(can_go);
  if (slot == kNoSlot && purpose == Purpose::demand)
    slot = slab.policy->victim([](std::uint32_t) { return true; });
  if (slot == kNoSlot && purpose == Purpose::demand) slot = slab.kept.last;
  if (slot == kNoSlot) return kNoSlot;
  evict(slot);
  detach(slot);
  return slot;
}

// A record that its layer used when it last could is likelier to be needed than a guess: in a cache that holds about
// one token's experts the oldest is just the one that comes next. Unless its layer is guessed at, and well, and it is
// not among the guesses. In a cache that holds half as much or less, the oldest is of a layer that comes a long time
// after the one that is guessed at: it would be gone by then.
bool ExpertScheduler::can_go_for_guess(const Slot& slot) const {
  const std::uint32_t layer = layer_of_[slot.record];
  const std::uint32_t distance = (layer + table_.layers() - layer_now_ - 1) % table_.layers();
  if (distance > hint_distance_ + table_.layers() / 2) return true;
  if (slot.is_hinted) return false;
  if (slot.last_used < last_fetch_[layer]) return true;
  return precision_ >= kTrustedPrecision && !hints_[layer].experts.empty();
}

// Leaves the slot in the free list.
void ExpertScheduler::evict(std::uint32_t slot) {
  Slot& s = slots_[slot];
  if (s.is_guess) {
    judge(s, false);
    statistics_.wasted_bytes += slab_of(s).shape.record_bytes;
    --unused_guesses_;
  }
  detach(slot);
  free_slot(slot);
}

void ExpertScheduler::free_slot(std::uint32_t slot) {
  Slot& s = slots_[slot];
  if (s.record != kNoRecord) slot_of_[s.record] = kNoSlot;
  const std::uint32_t slab = s.slab;
  s = Slot();
  s.slab = slab;
  put(slot, Place::free);
}

void ExpertScheduler::begin_loading(std::uint32_t slot, std::uint32_t record, Purpose purpose) {
  Slot& s = slots_[slot];
  s.record = record;
  s.state = State::loading;
  slot_of_[record] = slot;
  ++slab_of(s).loading;
  put(slot, purpose == Purpose::demand ? Place::demand : Place::guesses);
}

// A record of the open fetch that has a slot: it is the fetch's from now on, whoever it was read for. Says whether it
// was a guess.
bool ExpertScheduler::claim(std::uint32_t slot) {
  Slot& s = slots_[slot];
  s.is_wanted = true;
  const bool was_guess = s.is_guess;
  if (was_guess) {
    judge(s, true);
    s.is_guess = false;
    --unused_guesses_;
  }
  s.is_judged = false;
  s.is_fill = false;
  if (s.state == State::ready) {
    if (fetch_.order == FetchOrder::ready_first) s.is_swept = false;
    detach(slot);
    put(slot, Place::ready);
  } else if (s.has_failed) {
    s.restarts = true;
  } else {
    resume_loading(slot, Place::demand);
  }
  return was_guess;
}

void ExpertScheduler::want_present(std::uint32_t slot) {
  const bool is_ready = slots_[slot].state == State::ready;
  ++(is_ready ? statistics_.hits : statistics_.late);
  slots_[slot].was_late = !is_ready;
  if (!claim(slot)) return;
  const std::uint64_t bytes = submitted_bytes(slots_[slot]);  // on a guess; the rest of it is wanted now
  ++(is_ready ? statistics_.useful_guesses : statistics_.late_guesses);
  (is_ready ? statistics_.useful_bytes : statistics_.late_bytes) += bytes;
}

// To the end of `queue`, if there are pieces left.
void ExpertScheduler::resume_loading(std::uint32_t slot, Place queue) {
  Slot& s = slots_[slot];
  s.is_cancelled = false;
  detach(slot);
  if (s.submitted < slab_of(s).pieces.size()) put(slot, queue);
}

// Nobody needs it any more. What is out has to end first; a record that is out as a whole will be kept.
void ExpertScheduler::cancel_loading(std::uint32_t slot) {
  Slot& s = slots_[slot];
  if (s.submitted == slab_of(s).pieces.size()) return;
  detach(slot);
  s.is_cancelled = true;
  if (s.ended == s.submitted) finish_loading(slot);
}

std::uint64_t ExpertScheduler::submitted_bytes(const Slot& slot) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < slot.submitted; ++i) bytes += slabs_[slot.slab].pieces[i].bytes;
  return bytes;
}

// Nothing of it is out, and nothing of it will be.
void ExpertScheduler::finish_loading(std::uint32_t slot) {
  Slot& s = slots_[slot];
  --slab_of(s).loading;
  if (s.has_failed || s.is_cancelled) {
    if (s.is_guess) {
      statistics_.wasted_bytes += submitted_bytes(s);
      --unused_guesses_;
    }
    const std::uint32_t record = s.record;
    const bool restarts = s.restarts, was_wanted = s.is_wanted;
    free_slot(slot);
    if (restarts && was_wanted) {
      detach(slot);
      begin_loading(slot, record, Purpose::demand);
      slots_[slot].is_wanted = true;
    } else if (was_wanted) {
      fetch_.has_failed = true;
    }
    return;
  }
  s.state = State::ready;
  if (s.is_wanted)
    put(slot, Place::ready);
  else
    set_aside(slot);
}

// ---- The fetch of a layer ----

void ExpertScheduler::want(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order) {
  MF_REQUIRE(!fetch_.is_open, "one Fetch at a time");
  fetch_ = {};
  missing_.clear();
  next_missing_ = 0;
  fetch_.is_open = true;
  fetch_.layer = layer;
  fetch_.wanted = wanted;
  fetch_.order = order;
  // What is out for others does not count: a read that never ends must not keep this layer from reading.
  // A sweep is bounded by what it reads ahead.
  if (order == FetchOrder::ready_first) fetch_.most_bytes_out = bytes_out_ + options_.demand_window_bytes;
  layer_now_ = layer.index();
  hint_distance_ = 0;
  last_fetch_[layer.index()] = ++fetches_;
  for (const std::uint32_t expert : wanted) {
    const std::uint32_t slot = slot_of_[record_index(layer, expert)];
    if (slot != kNoSlot) {
      want_present(slot);
      continue;
    }
    ++statistics_.misses;
    missing_.push_back(expert);
  }
  drop_hints(layer.index());
}

bool ExpertScheduler::is_one_ready() const {
  if (!fetch_.is_open || fetch_.has_failed || has_handed_out_all()) return false;
  if (fetch_.order == FetchOrder::ready_first) return !ready_.is_empty();
  const std::uint32_t slot = slot_of_[record_index(fetch_.layer, fetch_.wanted[fetch_.handed_out])];
  return slot != kNoSlot && slots_[slot].place == Place::ready;
}

bool ExpertScheduler::is_reading_wanted() const {
  return fetch_.is_open && std::ranges::any_of(fetch_.wanted, [&](std::uint32_t expert) {
           const std::uint32_t slot = slot_of_[record_index(fetch_.layer, expert)];
           return slot != kNoSlot && slots_[slot].state == State::loading;
         });
}

std::optional<ExpertScheduler::Ready> ExpertScheduler::take() {
  if (!is_one_ready()) return std::nullopt;
  const std::uint32_t slot = fetch_.order == FetchOrder::ready_first
                                 ? ready_.first
                                 : slot_of_[record_index(fetch_.layer, fetch_.wanted[fetch_.handed_out])];
  Slot& s = slots_[slot];
  detach(slot);
  s.is_wanted = false;
  s.last_used = fetches_;
  ++s.leases;
  ++fetch_.handed_out;
  if (s.is_read_ahead) fetch_.read_ahead_bytes -= slab_of(s).shape.record_bytes;
  s.is_read_ahead = false;
  return Ready{key_of(s.record).expert, slot};
}

std::optional<ExpertKey> ExpertScheduler::waits_for() const {
  for (const std::uint32_t expert : fetch_.wanted) {
    const std::uint32_t slot = slot_of_[record_index(fetch_.layer, expert)];
    if (slot != kNoSlot && slots_[slot].is_wanted && slots_[slot].state == State::loading)
      return ExpertKey{fetch_.layer, ExpertId(expert)};
  }
  if (next_missing_ < missing_.size()) return ExpertKey{fetch_.layer, ExpertId(missing_[next_missing_])};
  return std::nullopt;
}

void ExpertScheduler::release(std::uint32_t slot) {
  Slot& s = slots_[slot];
  MF_REQUIRE(s.leases > 0, "a lease is given back once");
  if (--s.leases == 0 && !s.is_wanted) set_aside(slot);
}

void ExpertScheduler::end_fetch() {
  MF_REQUIRE(fetch_.is_open, "a Fetch ends once");
  for (const std::uint32_t expert : fetch_.wanted) {
    const std::uint32_t slot = slot_of_[record_index(fetch_.layer, expert)];
    if (slot == kNoSlot || !slots_[slot].is_wanted) continue;
    Slot& s = slots_[slot];
    s.is_wanted = false;
    s.is_read_ahead = false;
    if (s.state == State::ready) {
      detach(slot);
      if (s.leases == 0) set_aside(slot);
    } else if (!s.has_failed) {
      cancel_loading(slot);
    }
  }
  fetch_ = {};
}

// ---- Completions ----

bool ExpertScheduler::completes_record(std::uint64_t tag) const {
  const Slot& s = slots_[slot_of(tag)];
  return !s.has_failed && !s.is_cancelled && s.ended + 1u == slabs_[s.slab].pieces.size();
}

bool ExpertScheduler::is_wanted(std::uint64_t tag) const {
  const Slot& s = slots_[slot_of(tag)];
  return s.is_wanted && !s.restarts;
}

ExpertKey ExpertScheduler::record_of(std::uint64_t tag) const { return key_of(slots_[slot_of(tag)].record); }

PieceRead ExpertScheduler::piece_of(std::uint64_t tag) const {
  const std::uint32_t slot = slot_of(tag);
  const Slot& s = slots_[slot];
  const Piece piece = slabs_[s.slab].pieces[tag & 0xFFFF];
  return {tag, slot, key_of(s.record), piece.offset, piece.bytes, s.is_guess || s.is_fill};
}

void ExpertScheduler::complete(std::uint64_t tag, bool succeeded) {
  const std::uint32_t slot = slot_of(tag);
  Slot& s = slots_[slot];
  MF_REQUIRE(s.state == State::loading && s.ended < s.submitted, "a read that is out ends once");
  const Slab& slab = slab_of(s);
  bytes_out_ -= slab.pieces[tag & 0xFFFF].bytes;
  ++s.ended;
  if (!succeeded && !s.has_failed) {
    s.has_failed = true;
    detach(slot);  // no more pieces
    if (s.is_wanted) fetch_.has_failed = true;
  }
  if (s.ended < s.submitted) return;
  if (s.has_failed || s.is_cancelled || s.submitted == slab.pieces.size()) finish_loading(slot);
}

std::string_view ExpertScheduler::find_inconsistency() const {
  std::uint64_t out = 0;
  std::uint32_t guesses = 0;
  std::vector<std::uint32_t> loading(slabs_.size()), kept(slabs_.size());
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& s = slots_[i];
    if ((s.record == kNoRecord) != (s.state == State::free)) return "a slot has a record unless it is free";
    if (s.record != kNoRecord && slot_of_[s.record] != i) return "a record knows its slot";
    if ((s.place == Place::free) != (s.state == State::free)) return "free slots are in the free list";
    if (s.is_wanted && !fetch_.is_open) return "only an open fetch wants something";
    if (s.submitted < s.ended) return "no more reads end than began";
    out += s.submitted - s.ended;
    loading[s.slab] += s.state == State::loading;
    kept[s.slab] += s.place == Place::kept;
    guesses += s.is_guess;
    const bool is_nobodys = s.state == State::ready && s.leases == 0 && !s.is_wanted;
    if (is_nobodys != (s.place == Place::policy || s.place == Place::kept))
      return "what nobody holds is the policy's, or kept";
    const bool is_queued = s.place == Place::demand || s.place == Place::guesses;
    if (s.state == State::loading && s.submitted == s.ended && !is_queued) return "what is loading moves on";
  }
  for (std::size_t i = 0; i < slabs_.size(); ++i) {
    if (loading[i] != slabs_[i].loading) return "loading slots are counted";
    if (kept[i] != slabs_[i].kept_count) return "kept slots are counted";
  }
  if (guesses != unused_guesses_) return "unused guesses are counted";
  if ((out == 0) != (bytes_out_ == 0)) return "bytes that are out are counted";
  return {};
}

}  // namespace moeflux
