#include "experts/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kPieceAlignment = 4096;

std::uint64_t round_to_pages(std::uint64_t bytes) {
  return (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
}

// Cuts a part of a record into pieces of about the same size.
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
    : table_(std::move(table)),
      options_(options),
      hints_(table_.first_record),
      residency_(table_.first_record) {
  MF_REQUIRE(options.piece_bytes >= kPieceAlignment && options.piece_bytes % kPieceAlignment == 0,
             "pieces are whole pages");
  for (const SlabShape& shape : table_.slabs) add_slab(shape);
  links_.resize(slots_.size());
  for (Slab& slab : slabs_) slab.policy = make_policy(slots());
  for (std::uint32_t slot = 0; slot < slots(); ++slot) slab_of(slot).free.push_back(links_, slot);
  slot_of_.assign(table_.slab_of.size(), kNoSlot);
  layer_of_.resize(table_.slab_of.size());
  last_fetch_.resize(table_.layers());
  for (std::uint32_t layer = 0; layer < table_.layers(); ++layer) {
    const std::uint32_t first = table_.first_record[layer], end = table_.first_record[layer + 1];
    std::fill(layer_of_.begin() + first, layer_of_.begin() + end, layer);
    missing_.reserve(std::max<std::size_t>(missing_.capacity(), end - first));
  }
}

void ExpertScheduler::add_slab(const SlabShape& shape) {
  MF_REQUIRE(shape.slots >= 1 && shape.record_bytes > 0, "a slab has room for a record");
  const auto index = static_cast<std::uint32_t>(slabs_.size());
  Slab& slab = slabs_.emplace_back();
  slab.shape = shape;
  const auto add = [&](std::uint64_t at, std::uint64_t bytes) { slab.pieces.push_back({at, bytes}); };
  if (shape.record_bytes <= options_.piece_bytes) {
    add(0, shape.record_bytes);
  } else {
    cut(0, shape.down_offset, options_.piece_bytes, add);
    cut(shape.down_offset, shape.record_bytes, options_.piece_bytes, add);
  }
  MF_REQUIRE(slab.pieces.size() < (1u << 16), "a record has at most 65,535 pieces");
  slots_.resize(slots_.size() + shape.slots, Slot{.slab = index, .state = {}});
  // Half of the slots may be leased for computing while the other half is read.
  const std::uint32_t half = std::max(1u, shape.slots / 2);
  lease_limit_ = index == 0 ? half : std::min(lease_limit_, half);
}

ExpertKey ExpertScheduler::key_of(std::uint32_t record) const {
  const std::uint32_t layer = layer_of_[record];
  return {LayerId(layer), ExpertId(record - table_.first_record[layer])};
}

LoadingSlot& ExpertScheduler::loading(std::uint32_t slot) {
  LoadingSlot* const found = slots_[slot].loading();
  MF_REQUIRE(found != nullptr, "the slot is loading");
  return *found;
}

ReadySlot& ExpertScheduler::ready(std::uint32_t slot) {
  ReadySlot* const found = slots_[slot].ready();
  MF_REQUIRE(found != nullptr, "the slot is ready");
  return *found;
}

const Occupant& ExpertScheduler::occupant(std::uint32_t slot) const {
  const Occupant* const found = slots_[slot].occupant();
  MF_REQUIRE(found != nullptr, "the slot has a record");
  return *found;
}

Occupant& ExpertScheduler::occupant(std::uint32_t slot) {
  return const_cast<Occupant&>(std::as_const(*this).occupant(slot));
}

// ---- Lists ----

SlotList* ExpertScheduler::list_of(Queue queue) {
  switch (queue) {
    case Queue::demand: return &demand_;
    case Queue::guesses: return &guesses_;
    case Queue::none: break;
  }
  return nullptr;
}

void ExpertScheduler::enqueue(std::uint32_t slot, Queue queue) {
  LoadingSlot& s = loading(slot);
  MF_REQUIRE(s.queue == Queue::none, "a slot is in one list at a time");
  list_of(queue)->push_back(links_, slot);
  s.queue = queue;
}

void ExpertScheduler::dequeue(std::uint32_t slot) {
  LoadingSlot& s = loading(slot);
  if (s.queue != Queue::none) list_of(s.queue)->remove(links_, slot);
  s.queue = Queue::none;
}

void ExpertScheduler::give_to(std::uint32_t slot, Holder holder) {
  ReadySlot& s = ready(slot);
  MF_REQUIRE(s.holder == Holder::leases, "a slot is in one list at a time");
  s.holder = holder;
  if (holder == Holder::fetch) {
    ready_.push_back(links_, slot);
  } else if (holder == Holder::hint) {
    slab_of(slot).hinted.push_back(links_, slot);
    ++slab_of(slot).hinted_count;
  }
}

void ExpertScheduler::give_to_policy(std::uint32_t slot, Standing standing) {
  give_to(slot, Holder::policy);
  slab_of(slot).policy->add(slot, standing);
}

void ExpertScheduler::take_from_holder(std::uint32_t slot) {
  Slab& slab = slab_of(slot);
  switch (std::exchange(ready(slot).holder, Holder::leases)) {
    case Holder::fetch: ready_.remove(links_, slot); break;
    case Holder::policy: slab.policy->remove(slot); break;
    case Holder::hint:
      slab.hinted.remove(links_, slot);
      --slab.hinted_count;
      break;
    case Holder::leases: break;
  }
}

void ExpertScheduler::set_aside(std::uint32_t slot) {
  const Occupant& o = occupant(slot);
  const Slab& slab = slab_of(slot);
  // Guesses keep at most half of the slots from wanted records.
  if (is_guess(o.origin) && o.is_hinted && 2 * (slab.hinted_count + 1) <= slab.shape.slots) {
    give_to(slot, Holder::hint);
    return;
  }
  const bool goes_first = o.origin == Origin::sweep || o.origin == Origin::refuted_guess;
  give_to_policy(slot, goes_first ? Standing::oldest : Standing::newest);
}

// ---- Slots ----

std::uint32_t ExpertScheduler::obtain(std::uint32_t slab_index, Purpose purpose) {
  Slab& slab = slabs_[slab_index];
  if (!slab.free.is_empty()) return slab.free.first;
  std::uint32_t slot = kNoSlot;
  if (purpose == Purpose::guess) {
    slot = slab.policy->victim([&](std::uint32_t i) { return may_evict_for_guess(ready(i)); });
  } else {
    slot = slab.policy->victim([&](std::uint32_t i) { return !ready(i).occupant.is_hinted; });
    if (slot == kNoSlot) slot = slab.policy->victim([](std::uint32_t) { return true; });
    if (slot == kNoSlot) slot = slab.hinted.last;
  }
  if (slot != kNoSlot) evict(slot);
  return slot;
}

// A record that its layer used in the layer's last fetch is likelier to be needed than a guess: in a cache
// that holds about one token's experts, the oldest record is the one needed next. Exception: the layer has
// hints, the predictor is trusted, and the record is not hinted. In a cache half that size or smaller, the
// oldest record belongs to a layer that runs long after the hinted one, and would be evicted before then
// anyway.
bool ExpertScheduler::may_evict_for_guess(const ReadySlot& slot) const {
  const LayerId layer(layer_of_[slot.occupant.record]);
  if (hints_.distance_to(layer) > hints_.distance() + table_.layers() / 2) return true;
  if (slot.occupant.is_hinted) return false;
  if (slot.last_used < last_fetch_[layer.index()]) return true;
  return accounting_.is_trusted() && !hints_.of(layer).empty();
}

// Leaves the slot in the free list.
void ExpertScheduler::evict(std::uint32_t slot) {
  const Origin origin = occupant(slot).origin;
  if (origin == Origin::guess) accounting_.refute();
  if (is_guess(origin)) accounting_.waste(slab_of(slot).shape.record_bytes);
  take_from_holder(slot);
  free_slot(slot);
}

// Requires: the slot is in no list.
void ExpertScheduler::free_slot(std::uint32_t slot) {
  slot_of_[occupant(slot).record] = kNoSlot;
  residency_.set_state(occupant(slot).record, Residency::absent, false);
  slots_[slot].state = FreeSlot{};
  slab_of(slot).free.push_back(links_, slot);
}

// Called whenever the state or the origin of a slot has changed.
void ExpertScheduler::show(std::uint32_t slot) {
  const Occupant& o = occupant(slot);
  residency_.set_state(o.record, slots_[slot].ready() != nullptr ? Residency::ready : Residency::loading,
                       is_speculative(o.origin));
}

void ExpertScheduler::begin_loading(std::uint32_t slot, std::uint32_t record, Origin origin, Want want) {
  MF_REQUIRE(slots_[slot].is_free(), "only a free slot is read into");
  Slab& slab = slab_of(slot);
  slab.free.remove(links_, slot);
  slots_[slot].state = LoadingSlot{.occupant = {.record = record, .origin = origin, .want = want}};
  slot_of_[record] = slot;
  show(slot);
  ++slab.loading;
  enqueue(slot, want == Want::none ? Queue::guesses : Queue::demand);
}

// A record that the open fetch wants already has a slot. From now on it belongs to the fetch, whatever the
// reason for reading it was.
void ExpertScheduler::claim(std::uint32_t slot, Want want) {
  Occupant& o = occupant(slot);
  o.want = want;
  if (o.origin == Origin::guess) accounting_.confirm();
  if (o.origin != Origin::sweep) o.origin = Origin::demand;
  show(slot);
  if (slots_[slot].ready() != nullptr) {
    if (fetch_.order == FetchOrder::ready_first) o.origin = Origin::demand;
    take_from_holder(slot);
    give_to(slot, Holder::fetch);
  } else if (loading(slot).has_failed()) {
    loading(slot).fate = Fate::restarts;
  } else {
    resume_loading(slot, Queue::demand);
  }
}

// The same when the fetch begins, which counts as a hit or as late.
void ExpertScheduler::claim_at_begin(std::uint32_t slot) {
  const bool is_ready = slots_[slot].ready() != nullptr;
  ++(is_ready ? statistics_.hits : statistics_.late);
  // Bytes submitted for the guess. The rest of it is read on demand.
  if (is_guess(occupant(slot).origin)) accounting_.use(is_ready, submitted_bytes(slot));
  claim(slot, is_ready ? Want::hit : Want::late);
}

// Queues the slot if pieces are left.
void ExpertScheduler::resume_loading(std::uint32_t slot, Queue queue) {
  LoadingSlot& s = loading(slot);
  s.fate = Fate::proceeds;
  dequeue(slot);
  if (s.submitted < slab_of(slot).pieces.size()) enqueue(slot, queue);
}

// The record is not needed any more. Its slot is freed once the reads in flight have ended. A record whose
// pieces have all been submitted is kept.
void ExpertScheduler::cancel_loading(std::uint32_t slot) {
  LoadingSlot& s = loading(slot);
  if (s.submitted == slab_of(slot).pieces.size()) return;
  dequeue(slot);
  s.fate = Fate::cancelled;
  if (s.ended == s.submitted) finish_loading(slot);
}

std::uint64_t ExpertScheduler::submitted_bytes(std::uint32_t slot) const {
  const Slab& slab = slab_of(slot);
  const LoadingSlot* const s = slots_[slot].loading();
  if (s == nullptr) return slab.shape.record_bytes;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < s->submitted; ++i) bytes += slab.pieces[i].bytes;
  return bytes;
}

// No read of the slot is in flight, and no more will be submitted.
void ExpertScheduler::finish_loading(std::uint32_t slot) {
  const LoadingSlot& s = loading(slot);
  const Occupant o = s.occupant;
  const Fate fate = s.fate;
  --slab_of(slot).loading;
  if (fate == Fate::proceeds) {
    slots_[slot].state = ReadySlot{.occupant = o};
    show(slot);
    if (o.is_wanted())
      give_to(slot, Holder::fetch);
    else
      set_aside(slot);
    return;
  }
  if (is_guess(o.origin)) accounting_.waste(submitted_bytes(slot));
  free_slot(slot);
  if (!o.is_wanted()) return;
  if (fate == Fate::restarts)
    begin_loading(slot, o.record, Origin::demand, o.want);
  else
    fetch_.has_failed = true;
}

// ---- The fetch of a layer ----

void ExpertScheduler::begin_fetch(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order) {
  MF_REQUIRE(!fetch_.is_open, "one Fetch at a time");
  missing_.clear();
  next_missing_ = 0;
  fetch_ = {.is_open = true, .layer = layer, .wanted = wanted, .order = order};
  // Reads that are in flight for others do not count: a read that never ends must not keep this layer from
  // reading. A sweep is bounded by its read-ahead bytes instead.
  if (order == FetchOrder::ready_first)
    fetch_.most_bytes_in_flight = bytes_in_flight_ + options_.demand_window_bytes;
  hints_.begin_layer(layer);
  last_fetch_[layer.index()] = ++fetches_;
  for (const std::uint32_t expert : wanted) {
    const std::uint32_t slot = slot_holding(layer, expert);
    if (slot != kNoSlot) {
      claim_at_begin(slot);
      continue;
    }
    ++statistics_.misses;
    missing_.push_back(expert);
  }
  drop_hints(layer);
}

bool ExpertScheduler::is_one_ready() const {
  if (!fetch_.is_open || fetch_.has_failed || has_served_all()) return false;
  if (fetch_.order == FetchOrder::ready_first) return !ready_.is_empty();
  const std::uint32_t slot = slot_holding(fetch_.layer, fetch_.wanted[fetch_.served]);
  const ReadySlot* const s = slot == kNoSlot ? nullptr : slots_[slot].ready();
  return s != nullptr && s->holder == Holder::fetch;
}

bool ExpertScheduler::is_reading_wanted() const {
  return fetch_.is_open && std::ranges::any_of(fetch_.wanted, [&](std::uint32_t expert) {
           const std::uint32_t slot = slot_holding(fetch_.layer, expert);
           return slot != kNoSlot && slots_[slot].loading() != nullptr;
         });
}

std::optional<ExpertScheduler::Ready> ExpertScheduler::next_ready() {
  if (!is_one_ready()) return std::nullopt;
  const std::uint32_t slot = fetch_.order == FetchOrder::ready_first
                                 ? ready_.first
                                 : slot_holding(fetch_.layer, fetch_.wanted[fetch_.served]);
  ReadySlot& s = ready(slot);
  take_from_holder(slot);
  s.last_used = fetches_;
  residency_.set_last_use(s.occupant.record, fetches_);
  ++s.leases;
  ++fetch_.served;
  if (std::exchange(s.occupant.want, Want::none) == Want::read_ahead)
    fetch_.read_ahead_bytes -= slab_of(slot).shape.record_bytes;
  return Ready{key_of(s.occupant.record).expert, slot};
}

std::optional<ExpertKey> ExpertScheduler::pending() const {
  for (const std::uint32_t expert : fetch_.wanted) {
    const std::uint32_t slot = slot_holding(fetch_.layer, expert);
    const LoadingSlot* const s = slot == kNoSlot ? nullptr : slots_[slot].loading();
    if (s != nullptr && s->occupant.is_wanted()) return ExpertKey{fetch_.layer, ExpertId(expert)};
  }
  if (next_missing_ < missing_.size()) return ExpertKey{fetch_.layer, ExpertId(missing_[next_missing_])};
  return std::nullopt;
}

void ExpertScheduler::release(std::uint32_t slot) {
  ReadySlot& s = ready(slot);
  MF_REQUIRE(s.leases > 0, "a lease is given back once");
  if (--s.leases == 0 && !s.occupant.is_wanted()) set_aside(slot);
}

void ExpertScheduler::end_fetch() {
  MF_REQUIRE(fetch_.is_open, "a Fetch ends once");
  for (const std::uint32_t expert : fetch_.wanted) {
    const std::uint32_t slot = slot_holding(fetch_.layer, expert);
    if (slot == kNoSlot || !occupant(slot).is_wanted()) continue;
    occupant(slot).want = Want::none;
    if (const ReadySlot* const s = slots_[slot].ready()) {
      take_from_holder(slot);
      if (s->leases == 0) set_aside(slot);
    } else if (!loading(slot).has_failed()) {
      cancel_loading(slot);
    }
  }
  fetch_ = {};
}

ExpertStatistics ExpertScheduler::statistics() const {
  ExpertStatistics sum = statistics_;
  accounting_.add_to(sum);
  return sum;
}

}  // namespace moeflux
