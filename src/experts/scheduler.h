#pragma once
// Which experts are in which slots, and what is read next: a state machine without threads, files or clocks.
//
// It is told what happens (a layer wants experts, a read has ended, a lease was given back, a guess at what comes)
// and answers what to read next. So every interleaving is a unit test, and time is whatever the test says.
//
// A record, one expert of one layer, lies in a slot or in none. A slot is
//
//   free ──▶ loading ──▶ ready ──▶ free       it changes hands only when nobody holds it
//
// and while it is ready it is leased, wanted by the open fetch, kept for a guess, or the policy's to give away. A read
// that is out owns its slot: nothing else happens to it before the read has ended.
//
// Reads: what is wanted comes before what is guessed. A guess is only read while the drive has next to nothing to do,
// into a slot that the policy gives away, and as long as enough of the guesses are right. Records are read in pieces,
// gate and up before down. Nothing allocates after construction. One thread at a time.

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
#include "experts/slot_list.h"

namespace moeflux {

// Records of one size, and the slots for them.
struct SlabShape {
  std::uint64_t record_bytes = 0;
  std::uint64_t down_offset = 0;  // where its second part begins; a multiple of 4096
  std::uint32_t slots = 0;        // at least 1
};

// What there is to schedule.
struct ExpertTable {
  std::vector<SlabShape> slabs;
  std::vector<std::uint32_t> first_record;  // [layers + 1]: records are numbered layer by layer, by expert
  std::vector<std::uint32_t> slab_of;       // [records]

  std::uint32_t layers() const { return static_cast<std::uint32_t>(first_record.size()) - 1; }
};

struct SchedulerOptions {
  std::uint64_t piece_bytes = 256 * kKiB;  // of a read, at most
  // So much of what a layer wants is out at once. A drive shares its rate among all that is out, so with no bound all
  // records of a layer come at its end and none is computed while others are read (1 to 4 % of the speed of decoding).
  // Less than 2 MiB does not keep a drive of 6 GB/s busy from one look to the next.
  std::uint64_t demand_window_bytes = 4 * kMiB;
  // In a sweep over many experts of a layer so much is read ahead; at least four records, at most a quarter of the
  // slots.
  std::uint64_t sweep_window_bytes = 32 * kMiB;
  // What a sweep has read leaves first, so that the next one finds what the last one left. Else: last, as all else.
  bool keeps_in_sweeps = true;
  bool speculates = true;
  bool fills = false;  // where every record has a slot: reads all of them, in time that nobody else needs
};

// One read to hand to the drive.
struct PieceRead {
  std::uint64_t tag = 0;  // complete() gets it back
  std::uint32_t slot = 0;
  ExpertKey record;
  std::uint64_t offset = 0, bytes = 0;  // in the record
  bool is_speculative = false;
};

class ExpertScheduler {
 public:
  ExpertScheduler(ExpertTable table, const SchedulerOptions& options, const PolicyMaker& make_policy);

  // ---- The fetch of a layer ----
  // `wanted`: ascending, each once, and alive until end_fetch().
  void want(LayerId layer, std::span<const std::uint32_t> wanted, FetchOrder order);
  bool is_one_ready() const;
  bool has_handed_out_all() const { return fetch_.handed_out == fetch_.wanted.size(); }
  // The next that is ready, which is leased from now on. Not after a wanted read has failed.
  struct Ready {
    ExpertId expert;
    std::uint32_t slot;
  };
  std::optional<Ready> take();
  // One that is wanted and not ready, for messages; nothing: none is.
  std::optional<ExpertKey> waits_for() const;
  void end_fetch();  // what was not handed out is not wanted any more
  void release(std::uint32_t slot);
  std::uint32_t lease_limit() const { return lease_limit_; }

  // ---- Guesses ----
  // That `layer` will want these, likeliest first. Takes the place of what was guessed for it before.
  void hint(LayerId layer, std::span<const std::uint32_t> experts, float confidence);
  void forget_hints();
  // Guesses are read while fewer bytes than this are out: enough to keep a drive busy, little enough that what is
  // wanted next does not wait long behind them. Whoever has a clock knows the drive (drive_rate.h).
  void set_guess_window_bytes(std::uint64_t bytes) { guess_window_bytes_ = bytes; }

  // ---- Reads ----
  // What to read now; nothing: nothing. The caller asks as long as its drive takes more.
  std::optional<PieceRead> next_read();
  // Whether the record would be whole with this piece: time to look at it before complete().
  bool completes_record(std::uint64_t tag) const;
  bool is_wanted(std::uint64_t tag) const;  // by the open fetch
  bool is_reading_wanted() const;           // something that the open fetch wants
  ExpertKey record_of(std::uint64_t tag) const;
  std::uint32_t slot_of(std::uint64_t tag) const { return static_cast<std::uint32_t>(tag >> 32); }
  PieceRead piece_of(std::uint64_t tag) const;
  void complete(std::uint64_t tag, bool succeeded);
  std::uint64_t bytes_out() const { return bytes_out_; }

  const ExpertStatistics& statistics() const { return statistics_; }
  const ExpertTable& table() const { return table_; }
  std::uint32_t slots() const { return static_cast<std::uint32_t>(slots_.size()); }

  // For tests: what should be true of the slots and is not; empty: nothing.
  std::string_view find_inconsistency() const;
  bool is_idle() const { return bytes_out_ == 0 && demand_.is_empty() && guesses_.is_empty(); }

 private:
  static constexpr std::uint32_t kNoRecord = ~std::uint32_t{0};

  enum class State : std::uint8_t { free, loading, ready };
  // The list that a slot is in.
  enum class Place : std::uint8_t { none, free, demand, guesses, ready, kept, policy };

  struct Slot {
    std::uint32_t record = kNoRecord;
    std::uint32_t slab = 0;
    std::uint32_t leases = 0;
    std::uint64_t last_used = 0;             // by which fetch; 0: by none
    std::uint16_t submitted = 0, ended = 0;  // pieces
    State state = State::free;
    Place place = Place::none;
    bool is_wanted = false;      // by the open fetch, and not handed out
    bool was_late = false;       // was being read when that fetch began
    bool is_hinted = false;      // by the guesses for its layer
    bool is_guess = false;       // read for a guess, and not used yet
    bool is_judged = false;      // the guess has been counted as right or wrong
    bool is_fill = false;        // read because there was room
    bool is_swept = false;       // read in a sweep
    bool is_read_ahead = false;  // counts in OpenFetch::read_ahead_bytes
    bool is_cancelled = false;   // loading: no more pieces
    bool has_failed = false;     // loading: no more pieces, and nothing to keep
    bool restarts = false;       // has failed before it was wanted: is read again
  };
  struct Piece {
    std::uint64_t offset, bytes;
  };
  struct Slab {
    SlabShape shape;
    std::vector<Piece> pieces;
    SlotList free, kept;  // kept: for guesses; the next layer's first, more or less
    std::unique_ptr<EvictionPolicy> policy;
    std::uint32_t loading = 0, kept_count = 0;
  };
  struct Hints {
    std::vector<std::uint32_t> experts;  // reserved for all of the layer
    std::size_t next = 0;                // of them, to be looked at
    float confidence = 0;
  };
  struct OpenFetch {
    bool is_open = false, has_failed = false;
    LayerId layer{0};
    std::span<const std::uint32_t> wanted;
    FetchOrder order = FetchOrder::ready_first;
    std::size_t handed_out = 0;
    std::uint64_t read_ahead_bytes = 0;  // of records read in this sweep, and not handed out
    std::uint64_t most_bytes_out = ~std::uint64_t{0};
  };

  std::uint32_t record_index(LayerId layer, std::uint32_t expert) const {
    return table_.first_record[layer.index()] + expert;
  }
  ExpertKey key_of(std::uint32_t record) const;
  Slab& slab_of(const Slot& slot) { return slabs_[slot.slab]; }

  // Lists.
  SlotList* list_of(std::uint32_t slot, Place place);
  void put(std::uint32_t slot, Place place);
  void put_to_policy(std::uint32_t slot, Standing standing);
  void detach(std::uint32_t slot);
  void set_aside(std::uint32_t slot);  // ready, and nobody's: to the policy, or kept for a guess

  // Slots.
  enum class Purpose { demand, guess };
  std::uint32_t obtain(std::uint32_t slab, Purpose purpose);
  bool can_go_for_guess(const Slot& slot) const;
  void evict(std::uint32_t slot);
  void free_slot(std::uint32_t slot);
  void begin_loading(std::uint32_t slot, std::uint32_t record, Purpose purpose);
  bool claim(std::uint32_t slot);
  void want_present(std::uint32_t slot);
  std::uint64_t submitted_bytes(const Slot& slot) const;
  void finish_loading(std::uint32_t slot);
  void cancel_loading(std::uint32_t slot);
  void resume_loading(std::uint32_t slot, Place queue);

  // What to read.
  bool assign_wanted();  // false: some are wanted for which there is no slot now
  bool give_up_guesses(std::uint32_t slab);
  std::uint32_t steal_for_sweep(std::uint32_t slab);
  PieceRead emit(std::uint32_t slot);
  bool plan_guess();
  bool has_room_for_guess(const Slab& slab) const;
  std::uint64_t sweep_window_bytes(const Slab& slab) const;
  bool plan_fill();
  bool is_worth_reading(float confidence);
  std::uint64_t guess_window() const;
  void drop_hints(std::uint32_t layer);
  void judge(Slot& slot, bool was_right);

  ExpertTable table_;
  SchedulerOptions options_;
  std::vector<Slab> slabs_;
  std::vector<Slot> slots_;
  SlotLinks links_;
  std::vector<std::uint32_t> slot_of_;   // [records], or kNoSlot
  std::vector<std::uint32_t> layer_of_;  // [records]
  SlotList demand_, guesses_, ready_;    // loading with pieces left; wanted and ready
  std::vector<Hints> hints_;             // [layers]
  std::uint32_t lease_limit_ = 1;
  std::uint64_t bytes_out_ = 0;
  std::uint64_t guess_window_bytes_ = kMiB;

  OpenFetch fetch_;
  std::vector<std::uint32_t>
      missing_;  // of the open fetch: experts that have no slot yet, from next_missing_ on
  std::size_t next_missing_ = 0;
  std::uint64_t fetches_ = 0;
  std::vector<std::uint64_t> last_fetch_;  // [layers]: which was theirs
  std::uint32_t layer_now_ = 0;            // the last that wanted something
  std::uint32_t hint_distance_ = 0;        // layers ahead that have been looked at for guesses
  std::uint32_t unused_guesses_ = 0;
  float precision_ = 0.5F;            // of the guesses that were read, lately
  std::uint64_t next_probe_ = 0;      // fetch at which a guess is read although they are bad
  std::uint32_t probe_interval_ = 0;  // fetches
  std::uint32_t next_fill_ = 0;       // record

  ExpertStatistics statistics_;
};

}  // namespace moeflux
