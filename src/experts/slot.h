#pragma once
// One slot of the expert cache: free, loading a record, or holding a ready one.
//
// Each state has exactly the fields that it needs. The scheduler makes all transitions (see the diagram in
// experts/scheduler.h) and keeps the lists that `queue` and `holder` name. Plain values.

#include <cstdint>
#include <utility>
#include <variant>

namespace moeflux {

// Why the record was read.
enum class Origin : std::uint8_t {
  demand,         // a layer wanted it
  sweep,          // wanted by a sweep over many experts of a layer; evicted first
  guess,          // hinted, and not used yet
  refuted_guess,  // the same, after its layer ran without it; evicted first
  fill,           // every record has a slot and the drive was idle
};
constexpr bool is_guess(Origin origin) { return origin == Origin::guess || origin == Origin::refuted_guess; }
constexpr bool is_speculative(Origin origin) { return is_guess(origin) || origin == Origin::fill; }

// Whether the open fetch wants the record, and how the fetch found it. `none` once it has been returned.
enum class Want : std::uint8_t {
  none,
  hit,         // ready when the fetch began
  late,        // loading when the fetch began
  miss,        // in no slot
  read_ahead,  // in no slot, and counted in the read-ahead bytes of a sweep
};

// The record in a slot.
struct Occupant {
  std::uint32_t record = 0;
  Origin origin = Origin::demand;
  Want want = Want::none;
  bool is_hinted = false;  // by the current hints for its layer

  bool is_wanted() const { return want != Want::none; }
};

struct FreeSlot {};  // in its slab's free list

struct LoadingSlot {
  enum class Queue : std::uint8_t { none, demand, guesses };  // none: no pieces left to submit
  // What happens once every submitted piece has ended.
  enum class Fate : std::uint8_t {
    proceeds,
    cancelled,  // submits no more pieces; frees the slot
    failed,     // the same, because a piece could not be read
    restarts,   // failed before the open fetch wanted it: is read again
  };

  Occupant occupant;
  std::uint16_t submitted = 0, ended = 0;  // pieces
  Queue queue = Queue::none;
  Fate fate = Fate::proceeds;

  bool has_failed() const { return fate == Fate::failed || fate == Fate::restarts; }
};

struct ReadySlot {
  enum class Holder : std::uint8_t {
    leases,  // in no list
    fetch,   // the open fetch wants it
    hint,    // kept because it is hinted
    policy,  // may be evicted
  };

  Occupant occupant;
  Holder holder = Holder::leases;
  std::uint32_t leases = 0;     // may be nonzero while the open fetch holds the slot
  std::uint64_t last_used = 0;  // number of the fetch that used it last; 0: none
};

struct Slot {
  std::uint32_t slab = 0;
  std::variant<FreeSlot, LoadingSlot, ReadySlot> state;

  bool is_free() const { return std::holds_alternative<FreeSlot>(state); }
  LoadingSlot* loading() { return std::get_if<LoadingSlot>(&state); }
  const LoadingSlot* loading() const { return std::get_if<LoadingSlot>(&state); }
  ReadySlot* ready() { return std::get_if<ReadySlot>(&state); }
  const ReadySlot* ready() const { return std::get_if<ReadySlot>(&state); }
  // The record in the slot, or null for a free one.
  const Occupant* occupant() const {
    if (const LoadingSlot* const slot = loading()) return &slot->occupant;
    if (const ReadySlot* const slot = ready()) return &slot->occupant;
    return nullptr;
  }
  Occupant* occupant() { return const_cast<Occupant*>(std::as_const(*this).occupant()); }
};

}  // namespace moeflux
