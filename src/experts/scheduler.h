#pragma once
// Decides which experts are in which slots and what to read next. No threads, files or clocks.
//
// The caller reports events (a layer wants experts, a read has ended, a lease was returned, a hint arrived)
// and asks what to read next. A unit test can therefore replay any interleaving of reads, and a simulation
// can run in virtual time.
//
// A record is one expert of one layer. It is in one slot or in none. A slot is
//
//   free ──▶ loading ──▶ ready ──▶ free       evicted only while no lease and no fetch holds it
//               └─ failed, cancelled ─▶ free
//
// A loading slot is queued for its next piece (among what the open fetch wants, or among the guesses) until
// all its pieces have been submitted. It stays loading until its last read in flight has ended. A ready slot
// is held by its leases, by the open fetch, by a hint, or by the eviction policy, which may choose it as a
// victim. experts/slot.h defines the states.
//
// Reads: wanted records come before guesses. A guess is read only while fewer than guess_window() bytes are
// in flight, into a free slot or one that the policy evicts, and only while enough guesses are right
// (experts/guess_accounting.h). A record is read in pieces, gate and up before down. Nothing allocates after
// construction. One thread at a time; the residency map may be read by any thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/sizes.h"
#include "experts/eviction_policy.h"
#include "experts/expert_source.h"
#include "experts/expert_statistics.h"
#include "experts/guess_accounting.h"
#include "experts/hint_table.h"
#include "experts/residency_map.h"
#include "experts/slot.h"
#include "experts/slot_list.h"

namespace moeflux {

// Records of one size, and the number of slots for them.
struct SlabShape {
  std::uint64_t record_bytes = 0;
  std::uint64_t down_offset = 0;  // where the down matrix begins; a multiple of 4096
  std::uint32_t slots = 0;        // at least 1
};

// All records of a model.
struct ExpertTable {
  std::vector<SlabShape> slabs;
  std::vector<std::uint32_t> first_record;  // [layers + 1]: records are numbered by layer, then by expert
  std::vector<std::uint32_t> slab_of;       // [records]

  std::uint32_t layers() const { return static_cast<std::uint32_t>(first_record.size()) - 1; }
};

struct SchedulerOptions {
  std::uint64_t piece_bytes = 256 * kKiB;  // maximum size of one read
  // Maximum number of bytes of wanted records in flight. The drive divides its rate among all reads in
  // flight, so without a limit all records of a layer arrive at the end, and no expert is computed while
  // others are read (costs 1 to 4 % of decoding speed). Less than 2 MiB does not keep a 6 GB/s drive busy
  // between two calls.
  std::uint64_t demand_window_bytes = 4 * kMiB;
  // Bytes that a sweep over many experts of a layer reads ahead: at least four records, at most a quarter of
  // the slots.
  std::uint64_t sweep_window_bytes = 32 * kMiB;
  // If true, records that a sweep had to read are evicted first, so the records that it found in the cache
  // are still cached for the next sweep. If false, eviction is plain LRU.
  bool keeps_in_sweeps = true;
  bool speculates = true;
  bool fills = false;  // requires a slot per record: reads the rest while the drive is otherwise idle
};

// One read to submit to the drive.
struct PieceRead {
  std::uint64_t tag = 0;  // passed to complete()
  std::uint32_t slot = 0;
  ExpertKey record;
  std::uint64_t offset = 0, bytes = 0;  // in the record
  bool is_speculative = false;
};

class ExpertScheduler {
 public:
  ExpertScheduler(ExpertTable table, const SchedulerOptions& options, const PolicyMaker& make_policy);

  // ---- The fetch of a layer ----
  // `wanted`: ascending, without duplicates, alive until end_fetch(). Requires: no fetch is open.
  void begin_fetch(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order);
  bool is_one_ready() const;
  bool is_fetching() const { return fetch_.is_open; }
  bool has_served_all() const { return fetch_.served == fetch_.wanted.size(); }
  struct Ready {
    ExpertId expert;
    std::uint32_t slot;
  };
  // Leases the next ready expert to the caller. Returns nullopt if none is ready or a wanted read has failed.
  std::optional<Ready> next_ready();
  // One expert that is wanted and not ready, for messages; nullopt if there is none.
  std::optional<ExpertKey> pending() const;
  // Experts that were not returned are no longer wanted.
  void end_fetch();
  void release(std::uint32_t slot);  // ends one lease
  std::uint32_t lease_limit() const { return lease_limit_; }

  // ---- Hints ----
  // Predicts that `layer` will want these experts, likeliest first. Replaces its previous hints.
  void hint(LayerId layer, std::span<const std::uint32_t> experts, float confidence);
  void forget_hints();
  // Guesses are read while fewer than `bytes` bytes are in flight. The window should be large enough to keep
  // the drive busy, and small enough that the next wanted read does not queue behind guesses for long. The
  // caller measures the drive (drive_rate.h).
  void set_guess_window_bytes(std::uint64_t bytes) { guess_window_bytes_ = bytes; }

  // ---- Reads ----
  // Returns the next piece to read, or nullopt. Call it for as long as the drive accepts reads.
  std::optional<PieceRead> next_read();
  // Whether the end of this read completes a record that has neither failed nor been cancelled. The record
  // can then be verified, before complete().
  bool completes_record(std::uint64_t tag) const;
  bool is_wanted(std::uint64_t tag) const;  // by the open fetch
  bool is_reading_wanted() const;           // whether a record that the open fetch wants is loading
  ExpertKey record_of(std::uint64_t tag) const;
  std::uint32_t slot_of(std::uint64_t tag) const { return static_cast<std::uint32_t>(tag >> 32); }
  PieceRead piece_of(std::uint64_t tag) const;
  // A read has ended. Requires: it was in flight.
  void complete(std::uint64_t tag, bool succeeded);
  std::uint64_t bytes_in_flight() const { return bytes_in_flight_; }

  ExpertStatistics statistics() const;
  const ResidencyMap& residency() const { return residency_; }
  const ExpertTable& table() const { return table_; }
  std::uint32_t slots() const { return static_cast<std::uint32_t>(slots_.size()); }

  // For tests: the first invariant that does not hold; empty if all hold.
  std::string_view find_inconsistency() const;
  bool is_idle() const { return bytes_in_flight_ == 0 && demand_.is_empty() && guesses_.is_empty(); }

 private:
  using Queue = LoadingSlot::Queue;
  using Fate = LoadingSlot::Fate;
  using Holder = ReadySlot::Holder;

  struct Piece {
    std::uint64_t offset, bytes;
  };
  struct Slab {
    SlabShape shape;
    std::vector<Piece> pieces;
    SlotList free, hinted;  // hinted: ready and kept for their hints, roughly in the order of their layers
    std::unique_ptr<EvictionPolicy> policy;
    std::uint32_t loading = 0, hinted_count = 0;
  };
  struct OpenFetch {
    bool is_open = false, has_failed = false;
    LayerId layer{0};
    std::span<const std::uint32_t> wanted;
    FetchOrder order = FetchOrder::ready_first;
    std::size_t served = 0;
    std::uint64_t read_ahead_bytes = 0;  // of records read in this sweep and not returned
    std::uint64_t most_bytes_in_flight = ~std::uint64_t{0};
  };

  std::uint32_t record_index(LayerId layer, std::uint32_t expert) const {
    return table_.first_record[layer.index()] + expert;
  }
  std::uint32_t slot_holding(LayerId layer, std::uint32_t expert) const {  // kNoSlot if none
    return slot_of_[record_index(layer, expert)];
  }
  ExpertKey key_of(std::uint32_t record) const;
  void add_slab(const SlabShape& shape);
  Slab& slab_of(std::uint32_t slot) { return slabs_[slots_[slot].slab]; }
  const Slab& slab_of(std::uint32_t slot) const { return slabs_[slots_[slot].slab]; }
  // Require: the slot is in that state, or not free.
  LoadingSlot& loading(std::uint32_t slot);
  ReadySlot& ready(std::uint32_t slot);
  Occupant& occupant(std::uint32_t slot);
  const Occupant& occupant(std::uint32_t slot) const;

  // Lists. A slot is in at most one.
  SlotList* list_of(Queue queue);
  void enqueue(std::uint32_t slot, Queue queue);
  void dequeue(std::uint32_t slot);  // no-op for a loading slot in no queue
  void give_to(std::uint32_t slot, Holder holder);
  void give_to_policy(std::uint32_t slot, Standing standing);
  void take_from_holder(std::uint32_t slot);  // leaves the slot to its leases
  void set_aside(std::uint32_t slot);         // ready and unleased: to the policy, or kept for a hint

  // Slots.
  enum class Purpose { demand, guess };
  std::uint32_t obtain(std::uint32_t slab, Purpose purpose);  // a free slot, or kNoSlot
  bool may_evict_for_guess(const ReadySlot& slot) const;
  void evict(std::uint32_t slot);
  void free_slot(std::uint32_t slot);
  void show(std::uint32_t slot);
  bool is_shown(std::uint32_t record) const;
  void begin_loading(std::uint32_t slot, std::uint32_t record, Origin origin, Want want = Want::none);
  void claim(std::uint32_t slot, Want want);
  void claim_at_begin(std::uint32_t slot);
  std::uint64_t submitted_bytes(std::uint32_t slot) const;
  void finish_loading(std::uint32_t slot);
  void cancel_loading(std::uint32_t slot);
  void resume_loading(std::uint32_t slot, Queue queue);

  // What to read.
  bool assign_wanted();
  bool cancel_queued_guesses(std::uint32_t slab);
  std::uint32_t steal_for_sweep(std::uint32_t slab);
  PieceRead submit_piece(std::uint32_t slot);
  bool plan_guess();
  bool has_room_for_guess(const Slab& slab) const;
  std::uint64_t sweep_window_bytes(const Slab& slab) const;
  bool plan_fill();
  std::uint64_t guess_window() const;
  void drop_hints(LayerId layer);

  ExpertTable table_;
  SchedulerOptions options_;
  std::vector<Slab> slabs_;
  std::vector<Slot> slots_;
  SlotLinks links_;
  std::vector<std::uint32_t> slot_of_;   // [records], or kNoSlot
  std::vector<std::uint32_t> layer_of_;  // [records]
  SlotList demand_, guesses_;            // loading, with pieces left to submit
  SlotList ready_;                       // held by the open fetch
  std::uint32_t lease_limit_ = 1;
  std::uint64_t bytes_in_flight_ = 0;
  std::uint64_t guess_window_bytes_ = kMiB;

  OpenFetch fetch_;
  // Experts of the open fetch that have no slot yet, from next_missing_ on.
  std::vector<std::uint32_t> missing_;
  std::size_t next_missing_ = 0;
  std::uint64_t fetches_ = 0;
  std::vector<std::uint64_t> last_fetch_;  // [layers]: number of the layer's last fetch

  HintTable hints_;
  GuessAccounting accounting_;
  std::uint32_t next_fill_ = 0;  // record

  ResidencyMap residency_;       // shows slots_; see show()
  ExpertStatistics statistics_;  // without those of accounting_
};

}  // namespace moeflux
